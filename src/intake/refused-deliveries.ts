/**
 * Deliveries refused for their signature, counted for each account, so that an operator can see a wrong secret or somebody
 * who tries. Counted in memory and written together: who has no secret must not make us write to disk as fast as they ask.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { AccountId } from '../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../postgres/binary-array.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'
import type { Source } from './event.ts'

const WRITE_INTERVAL_MS = 10_000
const LAST_WRITE_MAX_MS = 500

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
  source: Source
  count: number
  lastAtMs: number
}

export class RefusedDeliveries {
  readonly #database: Queryable
  readonly #timer: NodeJS.Timeout
  /** by account and source: as many as there are accounts, at most */
  #counts = new Map<string, Refusals>()

  constructor(database: Queryable) {
    this.#database = database
    this.#timer = setInterval(() => void this.write(), WRITE_INTERVAL_MS).unref()
  }

  note(accountId: AccountId, source: Source): void {
    this.#add({ accountId, source, count: 1, lastAtMs: Date.now() })
  }

  #add({ accountId, source, count, lastAtMs }: Refusals): void {
    const name = `${accountId} ${source}`
    const known = this.#counts.get(name) ?? { count: 0, lastAtMs: 0 }
    this.#counts.set(name, {
      accountId,
      source,
      count: known.count + count,
      lastAtMs: Math.max(known.lastAtMs, lastAtMs),
    })
  }

  /** Never throws: what the database does not take is written the next time. */
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

  /** A database that is away is not waited for: the process has little time to end. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.race([this.write(), sleep(LAST_WRITE_MAX_MS, undefined, { ref: false })])
  }
}
