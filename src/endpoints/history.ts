/** Stores the last attempts of each endpoint, for operators. */
import { LRUCache } from 'lru-cache'
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { type EndpointResponse, isAccepted } from './post.ts'

/**
 * Attempts per endpoint in each of the two rings, accepted and refused ones. An operator needs the last few: 2 × 25 rows of 80 bytes
 * are 4 KB per endpoint.
 */
export const ATTEMPTS_KEPT = 25
/**
 * Storing an attempt takes 30 to 50 µs of PostgreSQL's time, a fifth of what the delivery takes. So a process stores ten accepted
 * attempts of an endpoint at once, as many as somebody tries, and then one in five seconds: 2,000 endpoints × 50 µs ÷ 5 s = 2 % of a
 * core, at any rate. All refused attempts are stored: they are few, because the sender pauses.
 */
const ACCEPTED_BURST = 10
const ACCEPTED_INTERVAL_MS = 5_000
const ENDPOINTS_MAX = 10_000

export interface AttemptResult {
  delivery: LeasedDelivery
  /** 1 for the first attempt */
  attempt: number
  response: EndpointResponse
  startedAtMs: number
  durationMs: number
  /** null: the content was not read, because there was no connection */
  events: number | null
}

/**
 * Send it after noteResponses, which inserts the rows of endpoint_answer and locks them in the order of their ids. If a lost connection
 * sends the statement twice, the attempts are stored twice: see `selectAttempts`.
 *
 * Endpoints: $1 bigint[]: ids; $2 int[] and $3 int[]: how many of the attempts were accepted and refused. Attempts: $4 bigint[]:
 * endpoints; $5 bigint[]: accounts; $6 bigint[]: deliveries; $7 int[]: number; $8 int[]: status; $9 text[]: reason; $10 int[]:
 * milliseconds since the beginning; $11 int[]: duration; $12 int[]: events; $13 int[]: position from the end of its ring,
 * beginning with 1.
 */
const noteAttempts = statement('note-endpoint-attempts')`
    with ring as (
      update endpoint_answer x
         set accepted_slot = (x.accepted_slot + s.accepted) % ${ATTEMPTS_KEPT}, refused_slot = (x.refused_slot + s.refused) % ${ATTEMPTS_KEPT}
        from unnest($1::bigint[], $2::int[], $3::int[]) as s (endpoint_id, accepted, refused)
       where x.endpoint_id = s.endpoint_id
      returning x.endpoint_id, x.accepted_slot, x.refused_slot
    )
    insert into endpoint_attempt (endpoint_id, was_accepted, slot, started_at, delivery_id, attempt, status, duration_ms, events, reason)
    select x.endpoint_id, r.was_accepted,
           (case when r.was_accepted then x.accepted_slot else x.refused_slot end - s.position + ${ATTEMPTS_KEPT}) % ${ATTEMPTS_KEPT},
           now() - s.age_ms * interval '1 millisecond', s.delivery_id, s.attempt, s.status, s.duration_ms,
           coalesce(s.events, (select coalesce(cardinality(event_keys), 1) from endpoint_delivery
                                where channel_oa_id = s.channel_oa_id and id = s.delivery_id)),
           s.reason
      from unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::text[], $10::int[], $11::int[], $12::int[],
                  $13::int[])
           as s (endpoint_id, channel_oa_id, delivery_id, attempt, status, reason, age_ms, duration_ms, events, position)
      join ring x on x.endpoint_id = s.endpoint_id
     cross join lateral (select coalesce(s.status between 200 and 299, false) as was_accepted) r
        on conflict (endpoint_id, was_accepted, slot) do update
           set started_at = excluded.started_at, delivery_id = excluded.delivery_id, attempt = excluded.attempt,
               status = excluded.status, duration_ms = excluded.duration_ms, events = excluded.events, reason = excluded.reason`

/** Decides which attempts are stored: a token bucket of accepted ones per endpoint, and all others. */
export class Sample {
  /** When the bucket of an endpoint is full again. */
  readonly #fullAtMs = new LRUCache<bigint, number>({ max: ENDPOINTS_MAX })

  takes({ delivery: { endpointId }, response }: AttemptResult, nowMs = performance.now()): boolean {
    if (!isAccepted(response)) return true
    const fullAtMs = Math.max(nowMs, this.#fullAtMs.get(endpointId) ?? 0) + ACCEPTED_INTERVAL_MS
    if (fullAtMs > nowMs + ACCEPTED_BURST * ACCEPTED_INTERVAL_MS) return false
    this.#fullAtMs.set(endpointId, fullAtMs)
    return true
  }
}

/** @param results in the order of their ends, at least one */
export function bindAttempts(results: AttemptResult[], nowMs = performance.now()): BoundStatement {
  const endpoints = new Map<bigint, { accepted: AttemptResult[]; refused: AttemptResult[] }>()
  for (const result of results) {
    const { endpointId } = result.delivery
    const rings = endpoints.get(endpointId) ?? { accepted: [], refused: [] }
    endpoints.set(endpointId, rings)
    rings[isAccepted(result.response) ? 'accepted' : 'refused'].push(result)
  }
  const rings = [...endpoints.values()].map(({ accepted, refused }) => ({
    accepted: accepted.slice(-ATTEMPTS_KEPT),
    refused: refused.slice(-ATTEMPTS_KEPT),
  }))
  const kept = rings
    .flatMap(({ accepted, refused }) => [accepted, refused])
    .flatMap((ring) => ring.map((result, index) => ({ ...result, position: ring.length - index })))
  const values = [
    int8Array([...endpoints.keys()]),
    int4Array(rings.map(({ accepted }) => accepted.length)),
    int4Array(rings.map(({ refused }) => refused.length)),
    int8Array(kept.map(({ delivery }) => delivery.endpointId)),
    int8Array(kept.map(({ delivery }) => delivery.accountId)),
    int8Array(kept.map(({ delivery }) => delivery.id)),
    int4Array(kept.map(({ attempt }) => attempt)),
    int4Array(kept.map(({ response }) => response.status)),
    textArray(kept.map(({ response }) => toStorableText(response.reason))),
    int4Array(kept.map(({ startedAtMs }) => Math.ceil(nowMs - startedAtMs))),
    int4Array(kept.map(({ durationMs }) => Math.ceil(durationMs))),
    int4Array(kept.map(({ events }) => events)),
    int4Array(kept.map(({ position }) => position)),
  ]
  return { statement: noteAttempts, values }
}
