/** Writes the results of attempts to the database in batches: one transaction every SETTLE_MS. Planner idioms: docs/planner.md. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array, textArray } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { type BoundStatement, statement } from '../postgres/statement.ts'
import { toStorableText } from '../postgres/storable.ts'
import { type EndpointResponse, isAccepted } from './post.ts'

const SETTLE_MS = 20
const RETRY_MS = 1_000
/** The backoff doubles from FIRST to LAST. Up to half of it is added at random, so that retries do not come in waves. */
const FIRST_RETRY_MS = 5_000
const LAST_RETRY_MS = 2 * 60 * 60 * 1000
/** After this many hours of failed attempts, a delivery has failed permanently. */
const RETRY_HOURS = 24

export function retryDelayMs(attempts: number, response: EndpointResponse, random = Math.random()): number {
  const backoffMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.max(0, attempts - 1))
  const jittered = Math.min(LAST_RETRY_MS, backoffMs * (1 + random / 2))
  const isLimiting = response.status === 429 || response.status === 503
  // A pause beyond LAST_RETRY_MS would use up RETRY_HOURS with few attempts.
  const requested = isLimiting ? Math.min(LAST_RETRY_MS, response.retryAfterMs ?? 0) : 0
  return Math.ceil(Math.max(jittered, requested))
}

/** Refused attempts per endpoint. An operator needs the last few. An accepted delivery needs no history, and it would cost a tenth. */
const ATTEMPTS_KEPT = 25
/** Hours whose attempts are counted: a day, and the present hour. */
export const HOURS_KEPT = 25

export interface Tried {
  kind: 'tried'
  response: EndpointResponse
  /** the beginning of a response that was not 2xx; null: none */
  text: string | null
  startedAtMs: number
  /** without reads from the database */
  durationMs: number
  /** Events of the delivery, 1 for a change of a member. Null: the content was not read, because there was no connection. */
  events: number | null
  /** the change number that was sent; null: the delivery has none */
  change: bigint | null
}

/** How an attempt ends: with a response or the reason why there is none, with nothing left to send, or without a try. */
export type AttemptEnd = Tried | { kind: 'completed'; change: bigint | null } | { kind: 'released' }

/**
 * Stores the latest response of each endpoint, counts the attempts of the hour, and stores refused attempts in the order of their ends,
 * each in place of the oldest one of its endpoint. Senders lock the rows of endpoint_answer in the order of their ids. The rows of
 * endpoint_hour and endpoint_attempt need no order, because the lock of their endpoint comes first. If a lost connection sends the
 * statement twice, the attempts are stored and counted twice.
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
    ), counted as (
      insert into endpoint_hour as h (endpoint_id, slot, hour, attempts, refused, duration_ms)
      select x.endpoint_id, extract(epoch from hour)::bigint / 3600 % ${HOURS_KEPT}, hour, count(*),
             (select count(*) from tried where endpoint_id = x.endpoint_id), sum(s.duration_ms)
        from unnest($14::bigint[], $15::int[]) as s (endpoint_id, duration_ms)
        join answered x on x.endpoint_id = s.endpoint_id
       cross join date_trunc('hour', now(), 'UTC') hour
       group by x.endpoint_id, hour
          on conflict (endpoint_id, slot) do update
             set hour = excluded.hour, attempts = excluded.attempts + case when h.hour = excluded.hour then h.attempts else 0 end,
                 refused = excluded.refused + case when h.hour = excluded.hour then h.refused else 0 end,
                 duration_ms = excluded.duration_ms + case when h.hour = excluded.hour then h.duration_ms else 0 end
    )
    insert into endpoint_attempt (endpoint_id, slot, started_at, delivery_id, attempt, status, duration_ms, events, event_key, reason,
                                  response_text)
    select x.endpoint_id, (x.refused_slot - s.position + ${ATTEMPTS_KEPT}) % ${ATTEMPTS_KEPT},
           now() - s.age_ms * interval '1 millisecond', s.delivery_id, s.attempt, s.status, s.duration_ms,
           coalesce(s.events, d.events), d.event_key, s.reason,
           case when x.content_erased_at < now() - s.age_ms * interval '1 millisecond' then s.response_text end
      from tried s
      join answered x on x.endpoint_id = s.endpoint_id
      left join lateral (select coalesce(cardinality(event_keys), cardinality(event_ids), 1) as events, event_keys[1] as event_key
                           from endpoint_delivery where channel_oa_id = s.channel_oa_id and id = s.delivery_id offset 0) d on true
     where s.position <= ${ATTEMPTS_KEPT}
        on conflict (endpoint_id, slot) do update
           set started_at = excluded.started_at, delivery_id = excluded.delivery_id, attempt = excluded.attempt,
               status = excluded.status, duration_ms = excluded.duration_ms, events = excluded.events, event_key = excluded.event_key,
               reason = excluded.reason, response_text = excluded.response_text`

/** A member that changed during the attempt stays due. `change` is the one that was sent, if the delivery has one. */
const completeDeliveries = statement('complete-deliveries')`
    with sent as materialized (
      select * from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as s (channel_oa_id, id, change)
       order by channel_oa_id, id
    ), completed as (
      delete from endpoint_delivery d using sent s
       where d.channel_oa_id = s.channel_oa_id and d.id = s.id and coalesce(d.change = s.change, true)
      returning d.channel_oa_id, d.id
    )
    update endpoint_delivery d
       set attempts = 0, first_attempt_at = null, created_at = now(), due_at = now(), leased_until = '-infinity'
      from sent s
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id and d.change <> s.change`

/** After $7 hours of failed attempts, a delivery has failed permanently. */
const postponeDeliveries = statement('postpone-deliveries')`
    update endpoint_delivery d
       set status = s.status, answer = s.answer, leased_until = '-infinity',
           last_attempt_at = now() - s.took_ms * interval '1 millisecond',
           first_attempt_at = coalesce(d.first_attempt_at, now() - s.took_ms * interval '1 millisecond'),
           due_at = now() + s.delay_ms * interval '1 millisecond',
           failed_at = case when d.first_attempt_at < now() - $7 * interval '1 hour' then now() end
      from unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::int[], $6::int[])
           as s (channel_oa_id, id, status, answer, delay_ms, took_ms)
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id`

/** Of deliveries that were not tried. `due_at` stays, because moving it would write the index. */
const releaseDeliveries = statement('release-deliveries')`
    update endpoint_delivery d set attempts = greatest(0, attempts - 1), leased_until = '-infinity'
      from unnest($1::bigint[], $2::bigint[]) as s (channel_oa_id, id)
     where d.channel_oa_id = s.channel_oa_id and d.id = s.id`

/** Retries of an endpoint that a recovery makes due. During an outage, one delivery at a time is tried, so it adds few. */
const RENEWED_MAX = 10_000

/** Makes retries due, because the endpoint is up again. $1 bigint: endpoint; $2 int: how many. */
const renewRetries = statement('renew-retries-of-endpoint')`
    with postponed as materialized (
      select channel_oa_id, id from endpoint_delivery
       where endpoint_id = $1 and failed_at is null and due_at > now() and is_due(leased_until, interval '30 seconds')
       order by due_at limit $2 for update skip locked
    )
    update endpoint_delivery d set due_at = now()
      from postponed p where d.channel_oa_id = p.channel_oa_id and d.id = p.id`

type Settled<End = AttemptEnd> = End & { delivery: LeasedDelivery; hasRecovered: boolean }

export class Settlements {
  readonly #connection: PinnedConnection
  #ended: Settled[] = []
  #timer: NodeJS.Timeout | null = null

  constructor(connection: PinnedConnection) {
    this.#connection = connection
  }

  /**
   * Completes the delivery, postpones it or returns its lease, and stores the response for operators.
   * @param hasRecovered whether the endpoint is up again after an outage
   */
  add(delivery: LeasedDelivery, end: AttemptEnd, hasRecovered = false): void {
    this.#ended.push({ ...end, delivery, hasRecovered })
    this.#settleIn(SETTLE_MS)
  }

  async settle(): Promise<void> {
    const ended = this.#ended
    if (ended.length === 0) return
    this.#ended = []
    try {
      await this.#connection.pipelineIdempotent(statementsFor(ended))
    } catch {
      // The database is down. Deliveries that are not settled when their leases end are sent again.
      this.#ended = [...ended, ...this.#ended]
      this.#settleIn(RETRY_MS)
    }
  }

  #settleIn(ms: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      void this.settle()
    }, ms)
  }
}

/** Results are first, because the removal of an endpoint locks them before its deliveries. */
function statementsFor(ended: Settled[]): BoundStatement[] {
  const tried = ended.filter((one) => one.kind === 'tried')
  const postponed = tried.filter(({ response }) => !isAccepted(response))
  const completed = ended.filter(
    (one) => one.kind === 'completed' || (one.kind === 'tried' && isAccepted(one.response)),
  )
  const released = ended.filter((one) => one.kind === 'released')
  const statements: BoundStatement[] = []
  if (tried.length > 0) statements.push(bindResults(tried))
  if (completed.length > 0) {
    const values = [
      ...keysOf(completed),
      int8Array(completed.map((one) => ('change' in one ? one.change : null))),
    ]
    statements.push({ statement: completeDeliveries, values })
  }
  if (postponed.length > 0) {
    const values = [
      ...keysOf(postponed),
      int4Array(postponed.map(({ response }) => response.status)),
      textArray(postponed.map(({ response }) => toStorableText(response.reason))),
      int4Array(postponed.map(({ delivery, response }) => retryDelayMs(delivery.attempts, response))),
      int4Array(postponed.map(({ startedAtMs }) => Math.ceil(performance.now() - startedAtMs))),
      RETRY_HOURS,
    ]
    statements.push({ statement: postponeDeliveries, values })
  }
  if (released.length > 0) statements.push({ statement: releaseDeliveries, values: keysOf(released) })
  for (const { delivery, hasRecovered } of tried)
    if (hasRecovered) statements.push({ statement: renewRetries, values: [delivery.endpointId, RENEWED_MAX] })
  return statements
}

const keysOf = (ended: Settled[]) => [
  int8Array(ended.map(({ delivery }) => delivery.accountId)),
  int8Array(ended.map(({ delivery }) => delivery.id)),
]

/** @param results in the order of their ends: the last one of an endpoint is its latest response */
function bindResults(results: Array<Settled<Tried>>): BoundStatement {
  const nowMs = performance.now()
  const responses = new Map(results.map(({ delivery, response }) => [delivery.endpointId, response]))
  const last = [...responses.values()]
  const refused = results.filter(({ response }) => !isAccepted(response))
  const values = [
    int8Array([...responses.keys()]),
    int4Array(last.map(({ status }) => status)),
    textArray(last.map(({ reason }) => toStorableText(reason))),
    int8Array(refused.map(({ delivery }) => delivery.endpointId)),
    int8Array(refused.map(({ delivery }) => delivery.accountId)),
    int8Array(refused.map(({ delivery }) => delivery.id)),
    int4Array(refused.map(({ delivery }) => delivery.attempts)),
    int4Array(refused.map(({ response }) => response.status)),
    textArray(refused.map(({ response }) => toStorableText(response.reason))),
    int4Array(refused.map(({ startedAtMs }) => Math.ceil(nowMs - startedAtMs))),
    int4Array(refused.map(({ durationMs }) => Math.ceil(durationMs))),
    int4Array(refused.map(({ events }) => events)),
    textArray(refused.map(({ text }) => text && toStorableText(text))),
    int8Array(results.map(({ delivery }) => delivery.endpointId)),
    int4Array(results.map(({ durationMs }) => Math.ceil(durationMs))),
  ]
  return { statement: noteAttempts, values }
}
