/** Stores the last refused attempts of each endpoint, for operators. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { noteResponses } from './backlog.ts'
import type { EndpointResponse } from './post.ts'

/** Refused attempts per endpoint. An operator needs the last few. An accepted delivery needs no history, and it would cost a tenth. */
const ATTEMPTS_KEPT = 25

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
 * Does what noteResponses does, and stores refused attempts, each in place of the oldest one of its endpoint. Senders lock the rows of
 * endpoint_answer in the order of their ids. The rows of endpoint_attempt need no order, because the lock of their endpoint comes first.
 * If a lost connection sends the statement twice, the attempts are stored twice: see `selectAttempts`.
 *
 * Endpoints: $1 bigint[]: ids; $2 int[]: status of the last response; $3 text[]: why there was none. Attempts, in the order of their
 * ends: $4 bigint[]: endpoints; $5 bigint[]: accounts; $6 bigint[]: deliveries; $7 int[]: number; $8 int[]: status; $9 text[]: reason;
 * $10 int[]: milliseconds since the beginning; $11 int[]: duration; $12 int[]: events; $13 text[]: text of the response.
 */
const noteAttempts = statement('note-endpoint-attempts')`
    with tried as materialized (
      select *, row_number() over (partition by endpoint_id order by no desc) as position
        from unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::int[], $8::int[], $9::text[], $10::int[], $11::int[], $12::int[],
                    $13::text[]) with ordinality
             as s (endpoint_id, channel_oa_id, delivery_id, attempt, status, reason, age_ms, duration_ms, events, response_text, no)
    ), answered as (
      insert into endpoint_answer as x (endpoint_id, answered_at, status, answer, refused_slot)
      select p.id, now(), s.status, s.answer, (select count(*) from tried where endpoint_id = p.id) % ${ATTEMPTS_KEPT}
        from unnest($1::bigint[], $2::int[], $3::text[]) as s (endpoint_id, status, answer)
        join lateral (select id from endpoint where id = s.endpoint_id offset 0) p on true
       order by p.id
          on conflict (endpoint_id) do update
             set answered_at = excluded.answered_at, status = excluded.status, answer = excluded.answer,
                 refused_slot = (x.refused_slot + excluded.refused_slot) % ${ATTEMPTS_KEPT}
      returning endpoint_id, refused_slot, content_erased_at
    )
    insert into endpoint_attempt (endpoint_id, slot, started_at, delivery_id, attempt, status, duration_ms, events, reason, response_text)
    select x.endpoint_id, (x.refused_slot - s.position + ${ATTEMPTS_KEPT}) % ${ATTEMPTS_KEPT},
           now() - s.age_ms * interval '1 millisecond', s.delivery_id, s.attempt, s.status, s.duration_ms,
           coalesce(s.events, (select coalesce(cardinality(event_keys), cardinality(event_ids), 1) from endpoint_delivery
                                where channel_oa_id = s.channel_oa_id and id = s.delivery_id)),
           s.reason,
           case when x.content_erased_at < now() - s.age_ms * interval '1 millisecond' then s.response_text end
      from tried s
      join answered x on x.endpoint_id = s.endpoint_id
     where s.position <= ${ATTEMPTS_KEPT}
        on conflict (endpoint_id, slot) do update
           set started_at = excluded.started_at, delivery_id = excluded.delivery_id, attempt = excluded.attempt,
               status = excluded.status, duration_ms = excluded.duration_ms, events = excluded.events, reason = excluded.reason,
               response_text = excluded.response_text`

/**
 * @param responses the last one of each endpoint
 * @param refused attempts of these endpoints, in the order of their ends
 */
export function bindResults(
  responses: Map<bigint, EndpointResponse>,
  refused: AttemptResult[],
  nowMs = performance.now(),
): BoundStatement {
  const last = [...responses.values()]
  const endpoints = [
    int8Array([...responses.keys()]),
    int4Array(last.map(({ status }) => status)),
    textArray(last.map(({ reason }) => toStorableText(reason))),
  ]
  if (refused.length === 0) return { statement: noteResponses, values: endpoints }
  const values = [
    ...endpoints,
    int8Array(refused.map(({ delivery }) => delivery.endpointId)),
    int8Array(refused.map(({ delivery }) => delivery.accountId)),
    int8Array(refused.map(({ delivery }) => delivery.id)),
    int4Array(refused.map(({ attempt }) => attempt)),
    int4Array(refused.map(({ response }) => response.status)),
    textArray(refused.map(({ response }) => toStorableText(response.reason))),
    int4Array(refused.map(({ startedAtMs }) => Math.ceil(nowMs - startedAtMs))),
    int4Array(refused.map(({ durationMs }) => Math.ceil(durationMs))),
    int4Array(refused.map(({ events }) => events)),
    textArray(refused.map(({ text }) => text && toStorableText(text))),
  ]
  return { statement: noteAttempts, values }
}
