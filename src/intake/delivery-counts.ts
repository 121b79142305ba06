/**
 * Counts deliveries per account and source, for operators. Counts are kept in memory and written in batches, so no delivery costs
 * an additional disk write. Planner idioms: docs/planner.md.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { every, type Repetition } from '../every.ts'
import type { AccountId } from '../ids.ts'
import { LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

const WRITE_INTERVAL_MS = 10_000
const LAST_WRITE_MAX_MS = 500

/**
 * Adds counts to the hour of each account's newest delivery. Counts of accounts that no longer exist are dropped.
 * $1 json: a list of Counts, each with its account and source
 */
const addCounts = statement('add-delivery-counts')`
    insert into delivery_hour as h (channel_oa_id, hour, source, deliveries, accepted, duplicates, unapplied, refused, failed,
                                    late, last_at, last_refused_at)
    select id, date_trunc('hour', at), source, deliveries, accepted, duplicates, unapplied, refused, failed,
           late, last_at, last_refused_at
      from json_to_recordset($1::json)
           as c (id bigint, source text, deliveries bigint, accepted bigint, duplicates bigint, unapplied bigint, refused bigint,
                 failed bigint, late bigint, last_at timestamptz, last_refused_at timestamptz, at timestamptz)
     cross join lateral (select from official_account where id = c.id offset 0) account
     order by id, source
        on conflict (channel_oa_id, hour, source) do update set
           deliveries = h.deliveries + excluded.deliveries, accepted = h.accepted + excluded.accepted,
           duplicates = h.duplicates + excluded.duplicates, unapplied = h.unapplied + excluded.unapplied,
           refused = h.refused + excluded.refused, failed = h.failed + excluded.failed, late = h.late + excluded.late,
           last_at = greatest(h.last_at, excluded.last_at),
           last_refused_at = greatest(h.last_refused_at, excluded.last_refused_at)`

const NOTHING = {
  /** The response was 2xx. */
  deliveries: 0,
  accepted: 0,
  duplicates: 0,
  unapplied: 0,
  /** The response was 403: the signature does not match. Or an ID token is of another login channel. */
  refused: 0,
  /** The response was 503. */
  failed: 0,
  /** A stored delivery was answered later than its platform waits. */
  late: 0,
}

type Counted = typeof NOTHING
const COUNTED = Object.keys(NOTHING) as Array<keyof Counted>

interface Counts extends Counted {
  last_at: Date | null
  last_refused_at: Date | null
  /** The newest delivery of any outcome. */
  at: Date
}

/** The source of counts about ID tokens. The event of a token is counted as a delivery of its own source. */
export const ID_TOKEN = 'id_token'

export class DeliveryCounts {
  readonly #database: Queryable
  readonly #writing: Repetition
  /** The keys are source and account, so the number of accounts bounds the size. */
  #counts = new Map<string, Map<AccountId, Counts>>()

  constructor(database: Queryable) {
    this.#database = database
    this.#writing = every('delivery counts', WRITE_INTERVAL_MS, () => this.write())
  }

  /** @param last the time that becomes the present one */
  add(
    accountId: AccountId,
    source: string,
    counted: Partial<Counted>,
    last: 'last_at' | 'last_refused_at' | null = null,
  ): void {
    const counts = this.#of(accountId, source)
    sum(counts, counted)
    counts.at = new Date()
    if (last !== null) counts[last] = counts.at
  }

  #of(accountId: AccountId, source: string): Counts {
    const accounts = this.#counts.get(source) ?? new Map<AccountId, Counts>()
    const counts = accounts.get(accountId) ?? {
      ...NOTHING,
      last_at: null,
      last_refused_at: null,
      at: new Date(),
    }
    this.#counts.set(source, accounts.set(accountId, counts))
    return counts
  }

  /** Never rejects. If the database fails, the counts are written the next time. */
  async write(): Promise<void> {
    const written = [...this.#counts].flatMap(([source, accounts]) =>
      [...accounts].map(([accountId, counts]) => ({ accountId, source, counts })),
    )
    this.#counts = new Map()
    if (written.length === 0) return
    await this.#store(written)
  }

  async #store(written: Array<{ accountId: AccountId; source: string; counts: Counts }>): Promise<void> {
    const rows = written.map(({ accountId, source, counts }) => ({
      id: String(accountId),
      source,
      ...counts,
    }))
    try {
      await this.#database.query(addCounts, [JSON.stringify(rows)])
    } catch (error) {
      // Another program has locked a row. The halves without it are written.
      const middle = written.length >> 1
      if (middle > 0 && sqlStateOf(error) === LOCK_TIMEOUT) {
        await this.#store(written.slice(0, middle))
        return this.#store(written.slice(middle))
      }
      for (const { accountId, source, counts } of written) {
        const newer = this.#of(accountId, source)
        sum(newer, counts)
        newer.last_at ??= counts.last_at
        newer.last_refused_at ??= counts.last_refused_at
      }
    }
  }

  /** Waits LAST_WRITE_MAX_MS at most, because the process has little time to shut down. */
  async close(): Promise<void> {
    void this.#writing.stop()
    await Promise.race([this.write(), sleep(LAST_WRITE_MAX_MS, undefined, { ref: false })])
  }
}

function sum(counts: Counted, added: Partial<Counted>): void {
  for (const name of COUNTED) counts[name] += added[name] ?? 0
}
