/**
 * Queues deliveries of accounts with many `line` endpoints. A flush stores one row of endpoint_fan_out per delivery, and this loop
 * inserts the rows of endpoint_delivery (decision 51). Accounts take turns, with a bounded number of endpoints each. The oldest
 * delivery of an account goes first, so each endpoint's rows are in the order of the deliveries.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { type Row, statement, type Transactions } from '../postgres/statement.ts'

/** Endpoints of one delivery, and accounts, per step: 8 × 50 rows take about 15 ms. */
const ENDPOINTS_PER_STEP = 50
const ACCOUNTS_PER_STEP = 8
/** The pause after a step as a multiple of the step: the loop uses half of one connection at most. */
const PAUSE_PER_STEP = 1
/** Finds deliveries of processes that were killed before they called `wake`. */
const POLL_MS = 1_000

/**
 * Moves the oldest delivery of each account ahead. A delivery that another instance is moving is skipped. `created_at` is copied,
 * because a content is searched among the events since then.
 *
 * $1 bigint: the least account; $2 int: how many accounts; $3 int: how many endpoints of each.
 */
const fanOut = statement('fan-out-deliveries')`
    with recursive oldest (channel_oa_id, id, position) as (
      (select channel_oa_id, id, 1 from endpoint_fan_out where channel_oa_id >= $1 order by channel_oa_id, id limit 1)
       union all
      select next.channel_oa_id, next.id, position + 1
        from oldest
        join lateral (select channel_oa_id, id from endpoint_fan_out
                       where channel_oa_id > oldest.channel_oa_id order by channel_oa_id, id limit 1) next on true
       where position < $2
    ), delivery as materialized (
      select f.* from oldest
        join lateral (select * from endpoint_fan_out where channel_oa_id = oldest.channel_oa_id and id = oldest.id
                         for update skip locked) f on true
    ), queued as (
      insert into endpoint_delivery (channel_oa_id, endpoint_id, destination, event_keys, replies, created_at, due_at)
      select f.channel_oa_id, p.id, f.destination, wanted.keys, p.id is not distinct from f.replier_id, f.created_at, f.created_at
        from delivery f
       cross join lateral unnest(f.endpoint_ids[f.done + 1 : f.done + $3]) as w (id)
        join lateral (select id, events from endpoint where id = w.id offset 0) p on true
        join lateral (select array_agg(key order by position) as keys
                        from unnest(f.event_keys, f.kinds) with ordinality as e (key, kind, position)
                       where p.events is null or e.kind = any (p.events)) wanted on wanted.keys is not null
      returning endpoint_id
    ), moved as (
      update endpoint_fan_out o set done = o.done + $3
        from delivery f
       where o.channel_oa_id = f.channel_oa_id and o.id = f.id and f.done + $3 < cardinality(f.endpoint_ids)
    ), completed as (
      delete from endpoint_fan_out o using delivery f
       where o.channel_oa_id = f.channel_oa_id and o.id = f.id and f.done + $3 >= cardinality(f.endpoint_ids)
    )
    select count(*)::int as accounts, max(channel_oa_id) as last_account, array(select endpoint_id from queued) as queued
      from oldest`

interface StepRow extends Row {
  /** Accounts with deliveries that the step found. */
  accounts: number
  last_account: bigint | null
  /** bigint[] of a result of pg. */
  queued: string[]
}

const NOTHING: StepRow = { accounts: 0, last_account: null, queued: [] }

export class FanOut {
  readonly #database: Transactions
  readonly #onQueued: (endpointIds: bigint[]) => void
  #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()
  #wake: () => void = () => undefined
  #isWoken = false

  /** @param onQueued receives the endpoints with new deliveries */
  constructor(database: Transactions, onQueued: (endpointIds: bigint[]) => void) {
    this.#database = database
    this.#onQueued = onQueued
  }

  start(): void {
    this.#stopping = new AbortController()
    this.#running = this.#run(this.#stopping.signal)
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    this.wake()
    await this.#running
  }

  /** Call it when there are new deliveries. */
  wake(): void {
    this.#isWoken = true
    this.#wake()
  }

  async #run(signal: AbortSignal): Promise<void> {
    let leastAccount = INT64_MIN
    while (!signal.aborted) {
      this.#isWoken = false
      const startedAtMs = performance.now()
      const step = await this.#step(leastAccount).catch(() => NOTHING)
      const pauseMs = PAUSE_PER_STEP * (performance.now() - startedAtMs)
      if (step.accounts > 0) await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      else if (leastAccount === INT64_MIN) await this.#sleep()
      // Continue after the last account of a full step. Otherwise begin again.
      const last = step.accounts === ACCOUNTS_PER_STEP ? step.last_account : null
      leastAccount = last === null || last === INT64_MAX ? INT64_MIN : last + 1n
    }
  }

  async #step(leastAccount: bigint): Promise<StepRow> {
    const values: unknown[] = [leastAccount, ACCOUNTS_PER_STEP, ENDPOINTS_PER_STEP]
    const [row = NOTHING] = await this.#database.query<StepRow>(fanOut, values)
    if (row.queued.length > 0) this.#onQueued(row.queued.map(BigInt))
    return row
  }

  /** Sleeps until there are new deliveries, or for POLL_MS. */
  async #sleep(): Promise<void> {
    if (this.#isWoken) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, POLL_MS)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}
