/**
 * Leases due deliveries. Each claim examines a bounded number of endpoints:
 *
 * 1. Rotation: each poll examines the next ENDPOINTS_PER_POLL endpoints with pending deliveries, in the order of their ids.
 *    2,000 endpoints are examined within 3 s.
 * 2. Backlogs: an endpoint with more due deliveries than fit into memory is examined again when its queue in memory runs low.
 */
import { INT64_MIN } from '../http/path-id.ts'
import type { LeasedDelivery } from '../intake/flush.ts'
import { int4Array, int8Array } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pool/pinned-connection.ts'
import { type Row, statement } from '../postgres/statement.ts'
import { isDown } from './post.ts'
import type { Queue } from './queue.ts'

/** Each costs an index probe of 10 µs. */
const ENDPOINTS_PER_POLL = 200
/** Claims of backlogs may be more frequent. Less than the interval of polls, which varies. */
const ROTATION_MS = 250
const BACKLOGS_PER_CLAIM = 200
/** The same as in flush_events. Longer than a request (10 s) and the wait before it. */
export const LEASE_MS = 30_000
/** Deliveries in memory, divided among the endpoints that one claim examines. */
const WAITING_MAX = 8_192
/** Minimum per endpoint. */
const WAITING_MIN = 16

interface ClaimedRow extends Row {
  id: bigint
  channel_oa_id: bigint
  endpoint_id: bigint
  /** including the next one */
  attempts: number
  /** since the commit */
  age_ms: number
}

/** Each endpoint takes one index probe. $1 bigint: the id after which to begin; $2 int: how many. */
const pendingEndpoints = statement('pending-endpoints')`
    with recursive pending (id, position) as (
      (select endpoint_id, 1 from endpoint_delivery
        where endpoint_id > $1 and failed_at is null order by endpoint_id, due_at limit 1)
       union all
      select next.endpoint_id, position + 1
        from pending
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > pending.id and failed_at is null
                       order by endpoint_id, due_at limit 1) next on true
       where position < $2
    )
    select w.id, x.status, x.answered_at is not null as "isKnown"
      from pending w
      left join lateral (select * from endpoint_answer where endpoint_id = w.id offset 0) x on true
     order by w.position`

/**
 * Leases the oldest due deliveries of each endpoint that is active or was removed. A retry is due within 2 hours (LAST_RETRY_MS).
 * $3 int: milliseconds of the lease.
 */
const claimDue = statement('claim-due-deliveries')`
    with due as materialized (
      select d.channel_oa_id, d.id
        from unnest($1::bigint[], $2::int[]) as w (endpoint_id, room)
        left join lateral (select status from endpoint where id = w.endpoint_id offset 0) p on true
       cross join due_ranges(interval '2 hours') range
        join lateral (
          select channel_oa_id, id from endpoint_delivery
           where coalesce(p.status, 'active') = 'active' and endpoint_id = w.endpoint_id and failed_at is null
             and is_due(leased_until, $3 * interval '1 millisecond')
             and due_at >= range.since and due_at < range.until
           order by due_at limit w.room for update skip locked) d on true
    )
    update endpoint_delivery d
       set attempts = attempts + 1, leased_until = now() + $3 * interval '1 millisecond'
      from due
     where d.channel_oa_id = due.channel_oa_id and d.id = due.id
    returning d.id, d.channel_oa_id, d.endpoint_id, d.attempts,
              (extract(epoch from clock_timestamp() - d.created_at) * 1000)::float8 as age_ms`

type Endpoints = Pick<Queue<LeasedDelivery>, 'stateOf' | 'restore'>

export class Claims {
  readonly #connection: PinnedConnection
  readonly #endpoints: Endpoints
  readonly #backlogs = new Set<bigint>()
  #lastExamined = INT64_MIN
  #rotatedAtMs = Number.NEGATIVE_INFINITY
  /** Deliveries of one endpoint that may wait in memory. Each claim sets it. */
  #share = WAITING_MAX

  constructor(connection: PinnedConnection, endpoints: Endpoints) {
    this.#connection = connection
    this.#endpoints = endpoints
  }

  /** Call it if the endpoint has due deliveries that no process has leased. */
  expect(endpointId: bigint): void {
    // During an outage, the rotation finds the delivery to try.
    if (!this.#endpoints.stateOf(endpointId).isDown) this.#backlogs.add(endpointId)
  }

  /** Whether the queue in memory is below its low-water mark and more deliveries can be leased. */
  isRunningOut(endpointId: bigint): boolean {
    return this.#backlogs.has(endpointId) && this.#isLow(endpointId)
  }

  async claim(): Promise<ClaimedRow[]> {
    const isTurn = performance.now() - this.#rotatedAtMs >= ROTATION_MS
    const rotated = isTurn ? await this.#rotate() : []
    const rooms = this.#roomsOf(new Set([...rotated, ...this.#nextBacklogs()]), performance.now())
    if (rooms.size === 0) return []
    const values = [int8Array([...rooms.keys()]), int4Array([...rooms.values()]), LEASE_MS]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: claimDue, values }])
    this.#noteBacklogs(rooms, rows as ClaimedRow[])
    return rows as ClaimedRow[]
  }

  async #rotate(): Promise<bigint[]> {
    this.#rotatedAtMs = performance.now()
    const values = [this.#lastExamined, ENDPOINTS_PER_POLL]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: pendingEndpoints, values }])
    const found = rows as Array<{ id: bigint; status: number | null; isKnown: boolean }>
    for (const { id, status, isKnown } of found) if (isKnown) this.#endpoints.restore(id, !isDown({ status }))
    this.#lastExamined = found.length < ENDPOINTS_PER_POLL ? INT64_MIN : (found.at(-1)?.id ?? INT64_MIN)
    return found.map(({ id }) => id)
  }

  #nextBacklogs(): bigint[] {
    const next: bigint[] = []
    for (const id of this.#backlogs) {
      if (next.length === BACKLOGS_PER_CLAIM) break
      if (this.#endpoints.stateOf(id).isDown) this.#backlogs.delete(id)
      else if (this.#isLow(id)) next.push(id)
    }
    return next
  }

  #isLow(endpointId: bigint): boolean {
    return this.#endpoints.stateOf(endpointId).waiting.length * 2 < this.#share
  }

  #roomsOf(ids: Set<bigint>, nowMs: number): Map<bigint, number> {
    const withRoom = [...ids].filter((id) => this.#endpoints.stateOf(id).room(nowMs) > 0)
    const share = Math.max(
      WAITING_MIN,
      Math.floor(WAITING_MAX / Math.max(withRoom.length, this.#backlogs.size)),
    )
    this.#share = share
    const rooms = withRoom.map((id): [bigint, number] => {
      const state = this.#endpoints.stateOf(id)
      return [id, Math.min(state.room(nowMs), share - state.waiting.length)]
    })
    return new Map(rooms.filter(([, room]) => room > 0))
  }

  /** An endpoint whose room was filled probably has more deliveries. It gets the last turn. */
  #noteBacklogs(rooms: Map<bigint, number>, rows: ClaimedRow[]): void {
    const found = new Map<bigint, number>()
    for (const { endpoint_id: id } of rows) found.set(id, (found.get(id) ?? 0) + 1)
    for (const [id, room] of rooms) {
      this.#backlogs.delete(id)
      if (found.get(id) === room && !this.#endpoints.stateOf(id).isDown) this.#backlogs.add(id)
    }
  }
}
