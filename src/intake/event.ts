/** The common form of events. Each source translates its vendor's format into it in a folder of its own. */
import type { AccountId } from '../ids.ts'

export interface Source {
  /** Stored with each event, and the label of metrics. */
  name: string
  /** The user ids of its events can be trusted. Events of other sources create no members: they are tracked activity. */
  isProven: boolean
}

export type Effect =
  | { type: 'none' }
  | { type: 'relationship'; relationship: 'following' | 'blocked' }
  | { type: 'conversation'; id: string; status: string | null; atMs: number }
  /** The sender deleted a message, so its stored content is deleted. */
  | { type: 'unsend'; messageId: string }
  /** Where the person came from. At least one of source and campaign is not null. */
  | { type: 'touch'; source: string | null; medium: string | null; campaign: string | null }
  /** What the platform says about the account. */
  | { type: 'accountState'; state: 'suspended' | 'resumed' | 'attached' | 'detached' }

export const NO_EFFECT: Effect = { type: 'none' }

export interface IntakeEvent {
  /** The source's own name of the kind, at most KIND_MAX_LENGTH characters. */
  kind: string
  key: Buffer
  occurredAtMs: number
  /** The time by the sender's clock, if occurredAtMs was corrected. An erasure compares the earlier of both. */
  claimedAtMs: number | null
  /** The event itself proves its person, although its source does not. */
  isProven?: boolean
  /** An act of the person, which counts. Other events only concern the person, as when an agent closes their conversation. */
  isOwnAct: boolean
  userId: string | null
  /** People who joined or left a group, each once. */
  otherUserIds: string[]
  groupId: string | null
  messageId: string | null
  effect: Effect
  /** JSON text as received. */
  payload: string
  /** Why the event cannot be applied to members. It is stored anyway. */
  failure: string | null
}

/** One object per delivery. Events with the same object are forwarded together. */
export interface ForwardedDelivery {
  /** Null: the account's bot user id. */
  destination: string | null
}

/** Bounds the cost of one request. LINE sends a few events. */
export const DELIVERY_MAX_EVENTS = 5_000
/** Characters. LINE's longest event kind has 17. */
export const KIND_MAX_LENGTH = 64

export class InvalidEvent extends Error {
  override readonly name = 'InvalidEvent'
}

/**
 * `unapplied`: stored without effect, because of the event's `failure`. `stale`: nothing was stored, because the account was
 * removed or its credentials have changed since the delivery was admitted.
 */
export type EventOutcome = 'accepted' | 'unapplied' | 'duplicate' | 'stale'

/** What admitted a delivery. The flush compares it with the account in the transaction that stores the events. */
export interface Admission {
  accountId: AccountId
  /** The version of the account in the path of the delivery. */
  credentialsVersion: bigint
  source: Source
  /** Endpoints of the receiving account whose condition is evaluated for each event. */
  conditions?: number
  /** The delivery is for another bot than that of the account in its path. The flush checks that the bot's accounts have not changed. */
  foreign?: { pathAccountId: AccountId; botUserId: string; botVersions: bigint }
}

export interface AdmittedEvent {
  admission: Admission
  event: IntakeEvent
  /** The delivery that carries the event, if endpoints receive it. Null: the event is not forwarded. */
  forwarded: ForwardedDelivery | null
}
