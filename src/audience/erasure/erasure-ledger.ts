/**
 * Records committed erasures in the erasure ledger (decision 58). A row of erased_person with `in_ledger = false` is not yet recorded:
 * its process is about to record it, was killed, could not write, or had no ledger.
 */
import type { AccountId } from '../../accounts/account.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import {
  type Queryable,
  type Row,
  type Statement,
  statement,
  type Transactions,
} from '../../postgres/statement.ts'
import { type LedgerErasure, type Revocation, requireLedger } from './ledger-files.ts'
import { LedgerWriter } from './ledger-writer.ts'

/** 1,000 lines × 149 bytes = 0.15 MB per write. */
const LINES_PER_WRITE = 1_000

export class ErasureLedger {
  readonly #writer: LedgerWriter

  /**
   * Throws a FatalError if the directory cannot be used.
   * @param directory null: none is configured
   */
  static async open(directory: string | null): Promise<ErasureLedger | null> {
    if (directory === null) return null
    await requireLedger(directory)
    return new ErasureLedger(directory)
  }

  /** @param writeTimeoutMs limit of one append; by default that of LedgerWriter */
  constructor(directory: string, writeTimeoutMs?: number) {
    this.#writer = new LedgerWriter(directory, writeTimeoutMs)
  }

  /** Resolves when the committed erasure of the member is on disk in the ledger. */
  recordMember(database: Transactions, accountId: AccountId, memberId: bigint): Promise<void> {
    return this.#record(database, selectUnrecordedMember, [accountId, memberId])
  }

  /** As recordMember, of a person who need not have been a member. */
  recordPerson(database: Transactions, accountId: AccountId, userId: string): Promise<void> {
    return this.#record(database, selectUnrecordedPerson, [accountId, userId])
  }

  async #record(database: Transactions, select: Statement, values: unknown[]): Promise<void> {
    const erasures = await database.query<Erasure>(select, values)
    if (erasures.length === 0) return
    await this.#writer.append(erasures)
    // If they cannot be marked, they are recorded again. A second line changes nothing.
    await database.query(markRecorded, columnsOf(erasures)).catch(() => undefined)
  }

  /** Records all left-over erasures and all revocations, the oldest first, except those that another instance is recording. */
  async recordAll(database: Transactions): Promise<void> {
    for (const step of [this.#recordErasures, this.#recordRevocations])
      while ((await database.transaction(step)) === LINES_PER_WRITE);
  }

  readonly #recordErasures = async (transaction: Queryable): Promise<number> => {
    const erasures = await transaction.query<Erasure>(selectOldestUnrecorded, [LINES_PER_WRITE])
    if (erasures.length === 0) return 0
    await this.#writer.append(erasures)
    await transaction.query(markRecorded, columnsOf(erasures))
    return erasures.length
  }

  readonly #recordRevocations = async (transaction: Queryable): Promise<number> => {
    const revocations = await transaction.query<Revocation & Row>(deleteOldestRevocations, [LINES_PER_WRITE])
    if (revocations.length > 0) await this.#writer.append(revocations)
    return revocations.length
  }
}

type Erasure = LedgerErasure & Row

const columnsOf = (erasures: LedgerErasure[]) => [
  int8Array(erasures.map(({ accountId }) => accountId)),
  textArray(erasures.map(({ hash }) => hash)),
  timestamptzArray(erasures.map(({ erasedAt }) => erasedAt)),
  int8Array(erasures.map(({ memberId }) => memberId)),
]

const MS = (time: string) => `floor(extract(epoch from ${time}) * 1000)::float8`

const COLUMNS = `e.channel_oa_id as "accountId", encode(e.person_hash, 'hex') as hash, e.member_id as "memberId",
           ${MS('e.erased_at')} as "erasedAt"`

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

/** $1 int: limit */
const selectOldestUnrecorded = statement('select-oldest-unrecorded-erasures')`
    select ${COLUMNS}
      from erased_person e where not in_ledger order by erased_at limit $1 for update skip locked`

/**
 * $1 bigint[]: accounts; $2 text[]: hashes; $3 timestamptz[]: times; $4 bigint[]: members. A person who was erased again meanwhile
 * is not marked. The commit does not wait for the disk: if a crash loses it, the erasures are only recorded again.
 */
const markRecorded = statement('mark-recorded-erasures')`
    update erased_person e set in_ledger = true
      from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::bigint[]) as line (account_id, hash, erased_at, member_id)
     where e.channel_oa_id = line.account_id and e.person_hash = decode(line.hash, 'hex')
       and date_trunc('milliseconds', e.erased_at) = line.erased_at and e.member_id is not distinct from line.member_id
       and set_config('synchronous_commit', 'off', true) is not null`

/** $1 int: limit. If the transaction fails after the write, the revocations are only recorded again. */
const deleteOldestRevocations = statement('delete-oldest-unrecorded-revocations')`
    with oldest as (select id from unrecorded_revocation order by id limit $1),
         deleted as (delete from unrecorded_revocation u using oldest where u.id = oldest.id
                     returning u.id, u.kind, u.object_id, u.revoked_at)
    select kind, object_id as id, ${MS('revoked_at')} as "revokedAt" from deleted order by deleted.id`
