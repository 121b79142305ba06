/** Limits of one request. Configured budgets must not be smaller. */

/** LINE escapes every non-ASCII character (6 bytes each), so a batch of long texts is large. */
export const BODY_MAX_BYTES = 1024 * 1024
/** Tracking events per request. Those beyond it are rejected by index. */
export const TRACKING_REQUEST_MAX_EVENTS = 500
