/**
 * Deliveries with a wrong signature, counted per account, so that an operator notices a wrong secret or an attack. They are
 * counted in memory and written together: a sender without the secret must not cause a disk write per request.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { AccountId } from '../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../postgres/binary-array.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'

const WRITE_INTERVAL_MS = 10_000
const LAST_WRITE_MAX_MS = 500

/** $1 bigint[] accounts, $2 text[] sources, $3 bigint[] counts, $4 timestamptz[] last times: parallel arrays. */
const addCounts: Statement = {
  name: 'add-refused-deliveries',
  text: `
    insert into refused_delivery as r (channel_oa_id, source, day, count, last_at)
    select id, source, (last_at at time zone 'UTC')::date, count, last_at
      from unnest($1::bigint[], $2::text[], $3::bigint[], $4::timestamptz[]) as c (id, source, count, last_at)
     order by id, source
        on conflict (channel_oa_id, source, day) do update set
           count = r.count + excluded.count, last_at = greatest(r.last_at, excluded.last_at)`,
}

interface Refusals {
  accountId: AccountId
  source: string
  count: number
  lastAtMs: number
}

export class RefusedDeliveries {
  readonly #database: Queryable
  readonly #timer: NodeJS.Timeout
  /** By account and source, so its size is bounded by the number of accounts. */
  #counts = new Map<string, Refusals>()

  constructor(database: Queryable) {
    this.#database = database
    this.#timer = setInterval(() => void this.write(), WRITE_INTERVAL_MS).unref()
  }

  count(accountId: AccountId, source: string): void {
    this.#add({ accountId, source, count: 1, lastAtMs: Date.now() })
  }

  #add({ accountId, source, count, lastAtMs }: Refusals): void {
    const name = `${accountId} ${source}`
    const before = this.#counts.get(name) ?? { count: 0, lastAtMs: 0 }
    this.#counts.set(name, {
      accountId,
      source,
      count: before.count + count,
      lastAtMs: Math.max(before.lastAtMs, lastAtMs),
    })
  }

  /** Never throws: counts that the database refuses are written the next time. */
  async write(): Promise<void> {
    const written = [...this.#counts.values()]
    if (written.length === 0) return
    this.#counts = new Map()
    try {
      await this.#database.query(addCounts, [
        int8Array(written.map(({ accountId }) => accountId)),
        textArray(written.map(({ source }) => source)),
        int8Array(written.map(({ count }) => BigInt(count))),
        timestamptzArray(written.map(({ lastAtMs }) => lastAtMs)),
      ])
    } catch {
      for (const refusals of written) this.#add(refusals)
    }
  }

  /** Does not wait for an unreachable database: the process has little time to end. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.race([this.write(), sleep(LAST_WRITE_MAX_MS, undefined, { ref: false })])
  }
}
