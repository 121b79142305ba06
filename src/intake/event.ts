/**
 * What the core knows of an event. Each source translates its vendor's words into this one shape in its own folder; nothing
 * behind it learns a vendor's words.
 */

/** Where events come from: a folder beside this file, see source.ts. */
export interface Source {
  /** Stored with each event, and the label of metrics. */
  name: string
  /** Its senders can be trusted to name people. Others make no member: their events are tracked activity. */
  isProven: boolean
}

/** What an event says beyond "this person was seen at that time". flush.ts handles each type in one exhaustive switch. */
export type Effect =
  | { type: 'none' }
  | { type: 'relationship'; relationship: 'following' | 'blocked' }
  | { type: 'conversation'; id: string; status: string | null; atMs: number }
  /** The sender took a message back, so its stored content must go. */
  | { type: 'unsend'; messageId: string }
  /** The platform suspended the account or reinstated it. */
  | { type: 'suspension'; suspended: boolean }

export const NO_EFFECT: Effect = { type: 'none' }

export interface IntakeEvent {
  /** The source's own word, at most KIND_MAX_LENGTH characters. */
  kind: string
  /** Deduplication key, 16 bytes: see event-key.ts. */
  key: Buffer
  occurredAtMs: number
  /** When it happened by the sender's clock, if occurredAtMs was corrected. An erasure compares the earlier of both. */
  claimedAtMs: number | null
  /** Overrides the source's: the event itself proves its person, although anybody can send events of this source. */
  isProven?: boolean
  /** The person did it, so it counts. Otherwise it only concerns them, as when an agent closes their conversation. */
  isOwnAct: boolean
  /** The person whom the event names as its source. */
  userId: string | null
  /** People who joined or left, without repetition. */
  otherUserIds: string[]
  /** The platform's id of the group or room in which it happened. */
  groupId: string | null
  /** The platform's id of the message that the event carries. */
  messageId: string | null
  effect: Effect
  /** The event as received, JSON text. Null: it was erased before the event could be applied. */
  payload: string | null
  /** Why the event cannot be applied to members. It is stored all the same. */
  failure: string | null
}

/** One object per delivery: events with the same object are forwarded together. */
export interface ForwardedDelivery {
  /** Null: the account's bot user id. */
  destination: string | null
}

/** Events in one delivery of a trusted sender. LINE sends a few; this only bounds the cost of one request. */
export const DELIVERY_MAX_EVENTS = 5_000
/** Characters. LINE's longest event kind has 17. */
export const KIND_MAX_LENGTH = 64

/** What is wrong with an event that can be stored but not applied. */
export class InvalidEvent extends Error {
  override readonly name = 'InvalidEvent'
}
