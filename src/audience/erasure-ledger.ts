/**
 * Records committed erasures in the erasure ledger (decision 58). A row of erased_person with `in_ledger = false` is not yet recorded,
 * because its process is about to, was killed, could not write, or had no ledger.
 */
import type { AccountId } from '../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../postgres/binary-array.ts'
import { type Queryable, type Row, statement, type Transactions } from '../postgres/statement.ts'
import type { LedgerErasure } from './ledger-line.ts'
import { LedgerWriter } from './ledger-writer.ts'

/** 1,000 × 149 bytes are one write of 0.15 MB. */
const ERASURES_PER_WRITE = 1_000

/** Arbitrary but fixed. This advisory lock lets one instance at a time record what is left over. */
const RECORD_LOCK = 7_301_007

export class ErasureLedger {
  readonly #writer: LedgerWriter
  /** Each account has one run at a time. Callers during that run share the next one, which begins after their commits. */
  readonly #running = new Map<AccountId, Promise<void>>()
  readonly #next = new Map<AccountId, Promise<void>>()

  /** @param directory null: none is configured */
  static of(directory: string | null): ErasureLedger | null {
    return directory === null ? null : new ErasureLedger(directory)
  }

  constructor(directory: string) {
    this.#writer = new LedgerWriter(directory)
  }

  /** Resolves when every erasure of the account that was committed before this call is on disk in the ledger. */
  recordAccount(database: Transactions, accountId: AccountId): Promise<void> {
    const running = this.#running.get(accountId)
    if (running === undefined) return this.#run(database, accountId)
    const next =
      this.#next.get(accountId) ?? running.catch(() => undefined).then(() => this.#run(database, accountId))
    this.#next.set(accountId, next)
    return next
  }

  /** Records all erasures that are left over, the oldest first, unless another instance is doing it. */
  async recordAll(database: Transactions): Promise<void> {
    while (await database.transaction((transaction) => this.#recordOldest(transaction)));
  }

  close(): Promise<void> {
    return this.#writer.close()
  }

  #run(database: Transactions, accountId: AccountId): Promise<void> {
    this.#next.delete(accountId)
    const run = this.#recordAccount(database, accountId).finally(() => this.#running.delete(accountId))
    this.#running.set(accountId, run)
    return run
  }

  async #recordAccount(database: Transactions, accountId: AccountId): Promise<void> {
    for (let afterHash = ''; ; ) {
      const rows = await database.query<Unrecorded>(selectUnrecorded, [
        accountId,
        afterHash,
        ERASURES_PER_WRITE,
      ])
      const last = rows.at(-1)
      if (last === undefined) return
      await this.#writer.append(rows.map(toErasure))
      // If the rows cannot be marked, they are recorded again, which does not matter.
      await database
        .pipeline([
          { statement: doNotWaitForDisk, values: [] },
          { statement: markRecorded, values: markValues(rows) },
        ])
        .catch(() => undefined)
      if (rows.length < ERASURES_PER_WRITE) return
      afterHash = last.hash
    }
  }

  /** Returns whether there may be more. */
  async #recordOldest(transaction: Queryable): Promise<boolean> {
    const [lock] = await transaction.query<{ is_ours: boolean }>(tryRecordLock, [RECORD_LOCK])
    if (lock?.is_ours !== true) return false
    const rows = await transaction.query<Unrecorded>(selectOldestUnrecorded, [ERASURES_PER_WRITE])
    if (rows.length === 0) return false
    await this.#writer.append(rows.map(toErasure))
    await transaction.query(doNotWaitForDisk)
    await transaction.query(markRecorded, markValues(rows))
    return rows.length === ERASURES_PER_WRITE
  }
}

interface Unrecorded extends Row {
  channel_oa_id: bigint
  hash: string
  erased_at_ms: bigint
  member_id: bigint | null
}

const toErasure = ({ channel_oa_id, hash, erased_at_ms, member_id }: Unrecorded): LedgerErasure => ({
  accountId: channel_oa_id,
  memberId: member_id,
  hash,
  erasedAt: Number(erased_at_ms),
})

const markValues = (rows: Unrecorded[]) => [
  int8Array(rows.map(({ channel_oa_id }) => channel_oa_id)),
  textArray(rows.map(({ hash }) => hash)),
  timestamptzArray(rows.map(({ erased_at_ms }) => Number(erased_at_ms))),
  int8Array(rows.map(({ member_id }) => member_id)),
]

/** $1 bigint: account; $2 text: the rows after this hash in hexadecimal digits; $3 int: limit. */
const selectUnrecorded = statement('select-unrecorded-erasures')`
    select channel_oa_id, encode(person_hash, 'hex') as hash, floor(extract(epoch from erased_at) * 1000)::bigint as erased_at_ms,
           member_id
      from erased_person
     where channel_oa_id = $1 and not in_ledger and person_hash > decode($2, 'hex')
     order by person_hash limit $3`

/** $1 int: limit. The order of the times lets the check at a start read only the ends of the files. */
const selectOldestUnrecorded = statement('select-oldest-unrecorded-erasures')`
    select channel_oa_id, encode(person_hash, 'hex') as hash, floor(extract(epoch from erased_at) * 1000)::bigint as erased_at_ms,
           member_id
      from erased_person where not in_ledger order by erased_at limit $1`

/**
 * $1 bigint[]: accounts; $2 text[]: hashes; $3 timestamptz[]: times; $4 bigint[]: members. A person who was erased again meanwhile
 * is not marked.
 */
const markRecorded = statement('mark-recorded-erasures')`
    update erased_person e set in_ledger = true
      from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::bigint[]) as line (account_id, hash, erased_at, member_id)
     where e.channel_oa_id = line.account_id and e.person_hash = decode(line.hash, 'hex')
       and date_trunc('milliseconds', e.erased_at) = line.erased_at and e.member_id is not distinct from line.member_id`

/** A mark that a crash loses is only made again. */
const doNotWaitForDisk = statement('mark-without-waiting-for-disk')`set local synchronous_commit = off`

/** $1 bigint: RECORD_LOCK */
const tryRecordLock = statement('try-lock-erasure-ledger')`select pg_try_advisory_xact_lock($1) as is_ours`
