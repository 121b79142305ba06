/**
 * Counts deliveries per account and source, for operators. Counts are kept in memory and written in batches, so no delivery costs
 * an additional disk write. Planner idioms: docs/planner.md.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { AccountId } from '../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../postgres/binary-array.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

const WRITE_INTERVAL_MS = 10_000
const LAST_WRITE_MAX_MS = 500

/**
 * Adds counts to the hour of each account's newest delivery. Counts of accounts that no longer exist are dropped.
 *
 * $1 bigint[] accounts, $2 text[] sources, $3 bigint[] deliveries, $4 bigint[] accepted events, $5 bigint[] duplicates,
 * $6 bigint[] unapplied events, $7 bigint[] refused deliveries, $8 bigint[] failed deliveries, $9 bigint[] late deliveries,
 * $10 timestamptz[] last delivery, $11 timestamptz[] last refused delivery, $12 timestamptz[] the newer of both or of a failure:
 * parallel arrays.
 */
const addCounts = statement('add-delivery-counts')`
    insert into delivery_hour as h (channel_oa_id, hour, source, deliveries, accepted, duplicates, unapplied, refused, failed,
                                    late, last_at, last_refused_at)
    select id, date_trunc('hour', at), source, deliveries, accepted, duplicates, unapplied, refused, failed,
           late, last_at, last_refused_at
      from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                  $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[])
           as c (id, source, deliveries, accepted, duplicates, unapplied, refused, failed, late, last_at, last_refused_at, at)
     cross join lateral (select from official_account where id = c.id offset 0) account
     order by id, source
        on conflict (channel_oa_id, hour, source) do update set
           deliveries = h.deliveries + excluded.deliveries, accepted = h.accepted + excluded.accepted,
           duplicates = h.duplicates + excluded.duplicates, unapplied = h.unapplied + excluded.unapplied,
           refused = h.refused + excluded.refused, failed = h.failed + excluded.failed, late = h.late + excluded.late,
           last_at = greatest(h.last_at, excluded.last_at),
           last_refused_at = greatest(h.last_refused_at, excluded.last_refused_at)`

/** In the order of the parameters $3 to $9. */
const COUNTED = ['deliveries', 'accepted', 'duplicates', 'unapplied', 'refused', 'failed', 'late'] as const

interface Counts extends Record<(typeof COUNTED)[number], number> {
  /** Milliseconds since 1970. Null: there was none. */
  lastAtMs: number | null
  lastRefusedAtMs: number | null
  /** The newest delivery of any outcome. */
  atMs: number
}

type Outcomes = Pick<Counts, 'accepted' | 'duplicates' | 'unapplied'>

/** The source of counts about ID tokens. */
export const ID_TOKEN = 'id_token'

export class DeliveryCounts {
  readonly #database: Queryable
  readonly #timer: NodeJS.Timeout
  /** The keys are source and account, so the number of accounts bounds the size. */
  #counts = new Map<string, Map<AccountId, Counts>>()

  constructor(database: Queryable) {
    this.#database = database
    this.#timer = setInterval(() => void this.write(), WRITE_INTERVAL_MS).unref()
  }

  /** The response was 2xx. */
  addStored(accountId: AccountId, source: string, { accepted, duplicates, unapplied }: Outcomes): void {
    const counts = this.#of(accountId, source)
    counts.deliveries += 1
    counts.accepted += accepted
    counts.duplicates += duplicates
    counts.unapplied += unapplied
    counts.atMs = Date.now()
    counts.lastAtMs = counts.atMs
  }

  /** A stored delivery was answered later than its platform waits. */
  addLate(accountId: AccountId, source: string): void {
    const counts = this.#of(accountId, source)
    counts.late += 1
    counts.atMs = Date.now()
  }

  /** An ID token proved a person. Its event is counted as a delivery of its own source. */
  addProof(accountId: AccountId): void {
    const counts = this.#of(accountId, ID_TOKEN)
    counts.atMs = Date.now()
    counts.lastAtMs = counts.atMs
  }

  /** The response was 403: the signature does not match. Or an ID token is of another login channel. */
  addRefused(accountId: AccountId, source: string): void {
    const counts = this.#of(accountId, source)
    counts.refused += 1
    counts.atMs = Date.now()
    counts.lastRefusedAtMs = counts.atMs
  }

  /** The response was 503. */
  addFailed(accountId: AccountId, source: string): void {
    const counts = this.#of(accountId, source)
    counts.failed += 1
    counts.atMs = Date.now()
  }

  #of(accountId: AccountId, source: string): Counts {
    const accounts = this.#counts.get(source) ?? new Map<AccountId, Counts>()
    const counts = accounts.get(accountId) ?? nothing()
    this.#counts.set(source, accounts.set(accountId, counts))
    return counts
  }

  /** Never rejects. If the database fails, the counts are written the next time. */
  async write(): Promise<void> {
    const written = this.#counts
    this.#counts = new Map()
    const rows = [...written].flatMap(([source, accounts]) =>
      [...accounts].map(([accountId, counts]) => ({ accountId, source, ...counts })),
    )
    if (rows.length === 0) return
    try {
      await this.#database.query(addCounts, [
        int8Array(rows.map(({ accountId }) => accountId)),
        textArray(rows.map(({ source }) => source)),
        ...COUNTED.map((field) => int8Array(rows.map((row) => BigInt(row[field])))),
        timestamptzArray(rows.map(({ lastAtMs }) => lastAtMs)),
        timestamptzArray(rows.map(({ lastRefusedAtMs }) => lastRefusedAtMs)),
        timestamptzArray(rows.map(({ atMs }) => atMs)),
      ])
    } catch {
      for (const [source, accounts] of written)
        for (const [accountId, counts] of accounts) merge(this.#of(accountId, source), counts)
    }
  }

  /** Waits LAST_WRITE_MAX_MS at most, because the process has little time to shut down. */
  async close(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.race([this.write(), sleep(LAST_WRITE_MAX_MS, undefined, { ref: false })])
  }
}

function nothing(): Counts {
  return {
    deliveries: 0,
    accepted: 0,
    duplicates: 0,
    unapplied: 0,
    refused: 0,
    failed: 0,
    late: 0,
    lastAtMs: null,
    lastRefusedAtMs: null,
    atMs: 0,
  }
}

function merge(into: Counts, counts: Counts): void {
  for (const field of COUNTED) into[field] += counts[field]
  into.lastAtMs ??= counts.lastAtMs
  into.lastRefusedAtMs ??= counts.lastRefusedAtMs
  into.atMs ||= counts.atMs
}
