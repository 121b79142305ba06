/**
 * Channels of node:diagnostics_channel, to which metrics.ts and log.ts subscribe. The publishing code does not depend on them. A
 * channel without a subscriber costs one comparison. Two services in one process share the channels.
 */
import { channel } from 'node:diagnostics_channel'
import type { FastifyRequest } from 'fastify'

export interface Occurrence<Facts> {
  publish(facts: Facts): void
  /** @returns ends the subscription */
  subscribe(listener: (facts: Facts) => void): () => void
}

function occurrence<Facts>(name: string): Occurrence<Facts> {
  const facts = channel(`oa-audience.${name}`)
  return {
    publish: (message) => {
      if (facts.hasSubscribers) facts.publish(message)
    },
    subscribe: (listener) => {
      const subscriber = (message: unknown) => listener(message as Facts)
      facts.subscribe(subscriber)
      return () => void facts.unsubscribe(subscriber)
    },
  }
}

/** The statements of one message to the database. */
export const statementsSent = occurrence<{ statements: string[] }>('statements-sent')

/** A request waited too long for a connection: `account` because of its own account's statements, `pool` because of others. */
export const databaseBusy = occurrence<{ pool: string; reason: 'account' | 'pool' }>('database-busy')

/** `replica`, or why the primary served the read: no replica could be queried (`unavailable`), or every one was too far `behind`. */
export const READ_OUTCOMES = ['replica', 'behind', 'unavailable'] as const
export type ReadOutcome = (typeof READ_OUTCOMES)[number]

/** A read that a replica may serve. Published only with DATABASE_READ_URL. */
export const readServed = occurrence<{ outcome: ReadOutcome }>('read-served')

/** A batch of events was committed. `seconds`: from sending it to its commit. */
export const flushed = occurrence<{ events: number; seconds: number }>('flushed')

/** Events that wait for a flush, after deliveries were added or taken. */
export const queueChanged = occurrence<{ source: string; queuedEvents: number }>('queue-changed')

/** The events of one delivery are on disk. `unapplied` counts accepted events without effect. */
export const deliveryStored = occurrence<{
  source: string
  events: ReadonlyArray<{ occurredAtMs: number }>
  accepted: number
  duplicates: number
  unapplied: number
}>('delivery-stored')

/** Events of a request were not stored, because they are invalid. */
export const eventsRejected = occurrence<{ source: string; events: number }>('events-rejected')

/** The database refused to apply an event, which was stored without effect. */
export const eventUnapplied = occurrence<{ error: Error }>('event-unapplied')

/** An ID token of a tracking request was verified. `unavailable`: LINE does not deliver its keys, so the request is refused. */
export const idTokenVerified = occurrence<{ outcome: 'valid' | 'invalid' | 'unavailable' }>(
  'id-token-verified',
)

export const profileRequested = occurrence<{ outcome: 'found' | 'unknown' | 'fault' }>('profile-requested')

/** After a fault, the account backs off: its profiles are not requested for a while. */
export const profilesBackedOff = occurrence<{
  accountId: bigint
  fault: string
  /** HTTP status of the platform's refusal */
  status: number | undefined
}>('profiles-backed-off')

export const accountVerified = occurrence<{ outcome: 'verified' | 'refused' | 'unavailable' }>(
  'account-verified',
)

/** Of the database's clock: it is ahead of this machine's by so much. */
export const clockCompared = occurrence<{ skewSeconds: number }>('clock-compared')

type EndpointOutcome = 'accepted' | 'rejected' | 'no_response'

export const endpointResponded = occurrence<{ outcome: EndpointOutcome; sinceCommitMs: number }>(
  'endpoint-responded',
)

export const notificationResponded = occurrence<{ format: string; outcome: EndpointOutcome }>(
  'notification-responded',
)

/** HEARTBEAT_URL was requested, after the database had committed. */
export const heartbeatSent = occurrence<{ outcome: 'accepted' | 'failed' }>('heartbeat-sent')

/** A request that has ended, with or without a response. Observers of http/responses.ts get it. */
export interface FinishedRequest {
  /** null if the request was too malformed to reach Fastify */
  request: FastifyRequest | null
  requestId: string
  /** the pattern, because a path may contain an oaHash and a query string a tracking key */
  route: string
  status: number
  /** from the end of the headers to the end of the response; null if not measured */
  seconds: number | null
  ip: string | undefined
}

export type RequestObserver = (finished: FinishedRequest) => void

export const UNKNOWN_ROUTE = 'unknown'
