/**
 * Records committed erasures in the erasure ledger (decision 58). A row of erased_person with `in_ledger = false` is not yet recorded:
 * its process is about to record it, was killed, could not write, or had no ledger.
 */
import type { AccountId } from '../../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import { RECORD_LOCK } from '../../postgres/locks.ts'
import {
  type Queryable,
  type Row,
  type Statement,
  statement,
  type Transactions,
} from '../../postgres/statement.ts'
import { ERASURES, type LedgerErasure, REVOCATIONS, type Revocation } from './ledger-files.ts'
import { LedgerWriter } from './ledger-writer.ts'

/** 1,000 lines × 149 bytes = 0.15 MB per write. */
const ERASURES_PER_WRITE = 1_000

export class ErasureLedger {
  readonly #writer: LedgerWriter<LedgerErasure>
  /**
   * Writes to a separate file. So erasures do not wait for its writes, and both files end with their newest erasures, which a start
   * compares with the database.
   */
  readonly #backlogWriter: LedgerWriter<LedgerErasure>
  readonly #revocationWriter: LedgerWriter<Revocation>

  /** @param directory null: none is configured */
  static of(directory: string | null): ErasureLedger | null {
    return directory === null ? null : new ErasureLedger(directory)
  }

  /** @param writeTimeoutMs limit of one append; by default that of LedgerWriter */
  constructor(directory: string, writeTimeoutMs?: number) {
    this.#writer = new LedgerWriter(directory, ERASURES, writeTimeoutMs)
    this.#backlogWriter = new LedgerWriter(directory, ERASURES, writeTimeoutMs)
    this.#revocationWriter = new LedgerWriter(directory, REVOCATIONS, writeTimeoutMs)
  }

  /** Resolves when the committed erasure of the member is on disk in the ledger. */
  recordMember(database: Transactions, accountId: AccountId, memberId: bigint): Promise<void> {
    return this.#record(database, selectUnrecordedMember, [accountId, memberId])
  }

  /** Resolves when the committed erasure of the person, who need not have been a member, is on disk in the ledger. */
  recordPerson(database: Transactions, accountId: AccountId, userId: string): Promise<void> {
    return this.#record(database, selectUnrecordedPerson, [accountId, userId])
  }

  /** Records all left-over erasures and all revocations, the oldest first, unless another instance is doing it. */
  async recordAll(database: Transactions): Promise<void> {
    for (const step of [this.#recordOldest, this.#recordRevocations])
      while (
        await database.transaction(async (transaction) => {
          const [lock] = await transaction.query<{ is_ours: boolean }>(tryRecordLock, [RECORD_LOCK])
          return lock?.is_ours === true && step(transaction)
        })
      );
  }

  async close(): Promise<void> {
    const writers = [this.#writer, this.#backlogWriter, this.#revocationWriter]
    await Promise.all(writers.map((writer) => writer.close()))
  }

  async #record(database: Transactions, select: Statement, values: unknown[]): Promise<void> {
    const rows = await database.query<Unrecorded>(select, values)
    if (rows.length === 0) return
    await this.#writer.append(rows.map(toErasure))
    // If the rows cannot be marked, they are recorded again. A second line changes nothing.
    await database
      .pipeline([
        { statement: doNotWaitForDisk, values: [] },
        { statement: markRecorded, values: markValues(rows) },
      ])
      .catch(() => undefined)
  }

  /** Returns whether there may be more. */
  readonly #recordOldest = async (transaction: Queryable): Promise<boolean> => {
    const rows = await transaction.query<Unrecorded>(selectOldestUnrecorded, [ERASURES_PER_WRITE])
    if (rows.length === 0) return false
    await this.#backlogWriter.append(rows.map(toErasure))
    await transaction.query(doNotWaitForDisk)
    await transaction.query(markRecorded, markValues(rows))
    return rows.length === ERASURES_PER_WRITE
  }

  /** Returns whether there may be more. */
  readonly #recordRevocations = async (transaction: Queryable): Promise<boolean> => {
    const rows = await transaction.query<Unwritten>(deleteOldestRevocations, [ERASURES_PER_WRITE])
    if (rows.length === 0) return false
    await this.#revocationWriter.append(
      rows.map(({ kind, object_id: id, ms }) => ({ kind, id, revokedAt: Number(ms) })),
    )
    return rows.length === ERASURES_PER_WRITE
  }
}

interface Unwritten extends Row {
  kind: string
  object_id: bigint
  ms: bigint
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

const COLUMNS = `e.channel_oa_id, encode(e.person_hash, 'hex') as hash, e.member_id,
           floor(extract(epoch from e.erased_at) * 1000)::bigint as erased_at_ms`

/** $1 bigint: account; $2 bigint: member. An ordered range, so that a plan cannot read the whole backlog by the index of times. */
const selectUnrecordedMember = statement('select-unrecorded-erasure-of-member')`
    select ${COLUMNS}
      from erased_person e where channel_oa_id = $1 and member_id >= $2 and member_id <= $2 and not in_ledger
     order by member_id`

/** $1 bigint: account; $2 text: user id. "offset 0" keeps a plan from reading the backlog of the account by a partial index. */
const selectUnrecordedPerson = statement('select-unrecorded-erasure-of-person')`
    select ${COLUMNS}
      from official_account a
      join lateral (select * from erased_person
                     where channel_oa_id = a.id and person_hash = person_hash(a.person_key, $2) offset 0) e on true
     where a.id = $1 and not e.in_ledger`

/** $1 int: limit. The order of the times lets the check at a start read only the ends of the files. */
const selectOldestUnrecorded = statement('select-oldest-unrecorded-erasures')`
    select ${COLUMNS}
      from erased_person e where not in_ledger order by erased_at limit $1`

/**
 * $1 bigint[]: accounts; $2 text[]: hashes; $3 timestamptz[]: times; $4 bigint[]: members. A person who was erased again meanwhile
 * is not marked.
 */
const markRecorded = statement('mark-recorded-erasures')`
    update erased_person e set in_ledger = true
      from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::bigint[]) as line (account_id, hash, erased_at, member_id)
     where e.channel_oa_id = line.account_id and e.person_hash = decode(line.hash, 'hex')
       and date_trunc('milliseconds', e.erased_at) = line.erased_at and e.member_id is not distinct from line.member_id`

/** If a crash loses the update, the erasure is only recorded again. */
const doNotWaitForDisk = statement('mark-without-waiting-for-disk')`set local synchronous_commit = off`

/** $1 int: limit. If the transaction fails after the write, the revocations are only recorded again. */
const deleteOldestRevocations = statement('delete-oldest-unrecorded-revocations')`
    with oldest as (select id from unrecorded_revocation order by id limit $1),
         deleted as (delete from unrecorded_revocation u using oldest where u.id = oldest.id
                     returning u.id, u.kind, u.object_id, u.revoked_at)
    select kind, object_id, floor(extract(epoch from revoked_at) * 1000)::bigint as ms from deleted order by id`

/** $1 bigint: RECORD_LOCK */
const tryRecordLock = statement('try-lock-erasure-ledger')`select pg_try_advisory_xact_lock($1) as is_ours`
