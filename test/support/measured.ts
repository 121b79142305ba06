/**
 * Options of a test that measures time. Another program may slow a measurement, or one of two that are compared. It does not slow the
 * same one three times.
 */
export const MEASURED = { retry: 2 }
