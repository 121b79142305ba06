/** Limits of one request, of an id, and of a minute of tracking events. */

/** LINE escapes every non-ASCII character (6 bytes each), so a batch of long texts is large. */
export const BODY_MAX_BYTES = 1024 * 1024
/** Characters. LINE's longest user ids have 68 (module channels). */
export const USER_ID_MAX_LENGTH = 128
/** Characters of a member's source, medium or campaign. */
export const SOURCE_MAX_LENGTH = 200

export interface Budget {
  eventsPerMinute: number
  bytesPerMinute: number
}

export interface TrackingBudgets {
  address: Budget
  key: Budget
}

/**
 * A request may exceed them: see Budgets. An address: many people share the one of a mobile operator, and 6,000 events a minute take
 * less than 1 GiB of disk an hour. A key: five such addresses.
 */
export const TRACKING_BUDGETS: TrackingBudgets = {
  address: { eventsPerMinute: 6_000, bytesPerMinute: 4 * 1024 * 1024 },
  key: { eventsPerMinute: 30_000, bytesPerMinute: 16 * 1024 * 1024 },
}
