/** Stores the last attempts of each endpoint, for operators. */
import { LRUCache } from 'lru-cache'
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { noteResponses } from './backlog.ts'
import { type EndpointResponse, isAccepted } from './post.ts'

/**
 * Attempts per endpoint in each of the two rings, accepted and refused ones. An operator needs the last few: 2 × 25 rows of 80 bytes
 * are 4 KB per endpoint.
 */
export const ATTEMPTS_KEPT = 25
/**
 * Storing an attempt takes 15 to 40 µs of PostgreSQL's time, a tenth or more of what the delivery takes. So a process stores ten accepted
 * attempts of an endpoint at once, as many as somebody tries, and then one in five seconds: 2,000 endpoints × 40 µs ÷ 5 s = 2 % of a
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
  /** the beginning of a response that was not 2xx; null: none */
  text: string | null
  startedAtMs: number
  durationMs: number
  /** null: the content was not read, because there was no connection */
  events: number | null
}

/**
 * Does what noteResponses does, and stores attempts. Senders lock the rows of endpoint_answer in the order of their ids. The rows of
 * endpoint_attempt need no order, because the lock of their endpoint comes first. If a lost connection sends the statement twice,
 * the attempts are stored twice: see `selectAttempts`.
 *
 * Endpoints: $1 bigint[]: ids; $2 int[]: status of the last response; $3 text[]: why there was none; $4 int[] and $5 int[]: how many
 * accepted and refused attempts are stored. Attempts: $6 bigint[]: endpoints; $7 bigint[]: accounts; $8 bigint[]: deliveries;
 * $9 int[]: number; $10 int[]: status; $11 text[]: reason; $12 int[]: milliseconds since the beginning; $13 int[]: duration;
 * $14 int[]: events; $15 int[]: position from the end of its ring, beginning with 1; $16 text[]: text of the response.
 */
const noteAttempts = statement('note-endpoint-attempts')`
    with answered as (
      insert into endpoint_answer as x (endpoint_id, answered_at, status, answer, accepted_slot, refused_slot)
      select p.id, now(), s.status, s.answer, s.accepted % ${ATTEMPTS_KEPT}, s.refused % ${ATTEMPTS_KEPT}
        from unnest($1::bigint[], $2::int[], $3::text[], $4::int[], $5::int[])
             as s (endpoint_id, status, answer, accepted, refused)
        join lateral (select id from endpoint where id = s.endpoint_id offset 0) p on true
       order by p.id
          on conflict (endpoint_id) do update
             set answered_at = excluded.answered_at, status = excluded.status, answer = excluded.answer,
                 accepted_slot = (x.accepted_slot + excluded.accepted_slot) % ${ATTEMPTS_KEPT},
                 refused_slot = (x.refused_slot + excluded.refused_slot) % ${ATTEMPTS_KEPT}
      returning endpoint_id, accepted_slot, refused_slot, content_erased_at
    )
    insert into endpoint_attempt (endpoint_id, was_accepted, slot, started_at, delivery_id, attempt, status, duration_ms, events, reason,
                                  response_text)
    select x.endpoint_id, r.was_accepted,
           (case when r.was_accepted then x.accepted_slot else x.refused_slot end - s.position + ${ATTEMPTS_KEPT}) % ${ATTEMPTS_KEPT},
           now() - s.age_ms * interval '1 millisecond', s.delivery_id, s.attempt, s.status, s.duration_ms,
           coalesce(s.events, (select coalesce(cardinality(event_keys), cardinality(event_ids), 1) from endpoint_delivery
                                where channel_oa_id = s.channel_oa_id and id = s.delivery_id)),
           s.reason,
           case when x.content_erased_at < now() - s.age_ms * interval '1 millisecond' then s.response_text end
      from unnest($6::bigint[], $7::bigint[], $8::bigint[], $9::int[], $10::int[], $11::text[], $12::int[], $13::int[], $14::int[],
                  $15::int[], $16::text[])
           as s (endpoint_id, channel_oa_id, delivery_id, attempt, status, reason, age_ms, duration_ms, events, position,
                 response_text)
      join answered x on x.endpoint_id = s.endpoint_id
     cross join lateral (select coalesce(s.status between 200 and 299, false) as was_accepted) r
        on conflict (endpoint_id, was_accepted, slot) do update
           set started_at = excluded.started_at, delivery_id = excluded.delivery_id, attempt = excluded.attempt,
               status = excluded.status, duration_ms = excluded.duration_ms, events = excluded.events, reason = excluded.reason,
               response_text = excluded.response_text`

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

/**
 * @param responses the last one of each endpoint
 * @param attempts of these endpoints, in the order of their ends
 */
export function bindResults(
  responses: Map<bigint, EndpointResponse>,
  attempts: AttemptResult[],
  nowMs = performance.now(),
): BoundStatement {
  const last = [...responses.values()]
  const endpoints = [
    int8Array([...responses.keys()]),
    int4Array(last.map(({ status }) => status)),
    textArray(last.map(({ reason }) => toStorableText(reason))),
  ]
  if (attempts.length === 0) return { statement: noteResponses, values: endpoints }
  const rings = ringsOf(responses.keys(), attempts)
  const kept = rings
    .flatMap(({ accepted, refused }) => [accepted, refused])
    .flatMap((ring) => ring.map((attempt, index) => ({ ...attempt, position: ring.length - index })))
  const values = [
    ...endpoints,
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
    textArray(kept.map(({ text }) => text && toStorableText(text))),
  ]
  return { statement: noteAttempts, values }
}

/** The newest attempts of each endpoint, in the order of the endpoints. */
function ringsOf(endpointIds: Iterable<bigint>, attempts: AttemptResult[]) {
  const empty = () => ({ accepted: [] as AttemptResult[], refused: [] as AttemptResult[] })
  const rings = new Map([...endpointIds].map((id) => [id, empty()]))
  for (const attempt of attempts) {
    rings
      .get(attempt.delivery.endpointId)
      ?.[isAccepted(attempt.response) ? 'accepted' : 'refused'].push(attempt)
  }
  return [...rings.values()].map(({ accepted, refused }) => ({
    accepted: accepted.slice(-ATTEMPTS_KEPT),
    refused: refused.slice(-ATTEMPTS_KEPT),
  }))
}
