/**
 * Records committed erasures in the erasure ledger (decision 58). A row of erased_person with `in_ledger = false` is not yet recorded:
 * its process is about to record it, was killed, could not write, or had no ledger.
 */
import { randomBytes } from 'node:crypto'
import { type BigIntStats, statSync } from 'node:fs'
import { appendFile, open, stat, unlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { AccountId } from '../../ids.ts'
import {
  type Queryable,
  type Row,
  type Statement,
  statement,
  type Transactions,
} from '../../postgres/statement.ts'
import { type LedgerEntry, type LedgerErasure, lineOf, requireLedger } from './ledger-files.ts'

/** 1,000 lines × 149 bytes = 0.15 MB per write. */
const LINES_PER_WRITE = 1_000
/** Only the service's user may read the hashes of erased people. */
const FILE_MODE = 0o600

/** A network file system whose server is unreachable may not respond for hours. A write and an fsync take less even on a busy disk. */
const WRITE_TIMEOUT_MS = 10_000
/** Limits the memory while the disk hangs: 10,000 × 149 bytes = 1.5 MB. */
const WAITING_MAX_LINES = 10_000

/** The message contains the system's error code, and no personal data. */
export class LedgerUnwritable extends Error {
  override readonly name = 'LedgerUnwritable'

  constructor(reason: string) {
    super(`ERASURE_LEDGER cannot be written (${reason})`)
  }
}

/** Each process appends lines to a file of its own. */
export class ErasureLedger {
  readonly #directory: string
  readonly #timeoutMs: number
  /** Device and inode, which a directory keeps and its replacement does not have. Null: it does not exist yet. */
  #identity: Pick<BigIntStats, 'dev' | 'ino'> | null
  #idle: Promise<void> = Promise.resolve()
  #next: { lines: string[]; written: Promise<void> } | null = null
  /** null before the first write, and after a failed one */
  #path: string | null = null

  /** Throws a FatalError if the directory cannot be used. */
  static async open(directory: string | null): Promise<ErasureLedger | null> {
    if (directory === null) return null
    await requireLedger(directory)
    return new ErasureLedger(directory)
  }

  constructor(directory: string, timeoutMs = WRITE_TIMEOUT_MS) {
    this.#directory = directory
    this.#timeoutMs = timeoutMs
    this.#identity = statSync(directory, { bigint: true, throwIfNoEntry: false }) ?? null
  }

  /** Resolves when the committed erasure of the member is on disk in the ledger. */
  recordMember(database: Queryable, accountId: AccountId, memberId: bigint): Promise<void> {
    return this.#recordOne(database, selectOfMember, [accountId, memberId])
  }

  /** As recordMember, of a person who need not have been a member. */
  recordPerson(database: Queryable, accountId: AccountId, userId: string): Promise<void> {
    return this.#recordOne(database, selectOfPerson, [accountId, userId])
  }

  /** No connection waits for the disk. */
  async #recordOne(database: Queryable, select: Statement, values: unknown[]): Promise<void> {
    const [erasure] = await database.query<LedgerErasure & Row>(select, values)
    if (erasure === undefined) return
    await this.append([erasure])
    const { accountId, hash, memberId, erasedAt } = erasure
    // If it cannot be marked, it is recorded again. A second line changes nothing.
    await database.query(markRecorded, [accountId, hash, memberId, erasedAt]).catch(() => undefined)
  }

  /** Records all left-over erasures and all revocations, the oldest first, except those that another instance is recording. */
  async recordAll(database: Transactions): Promise<void> {
    for (const take of [takeOldestErasures, takeOldestRevocations]) {
      const step = async (transaction: Queryable) => {
        const entries = await transaction.query<LedgerEntry & Row>(take, [LINES_PER_WRITE])
        if (entries.length > 0) await this.append(entries)
        return entries.length
      }
      while ((await database.transaction(step)) === LINES_PER_WRITE);
    }
  }

  /**
   * Resolves when the entries are on disk. Concurrent callers share one write and one fsync. Rejects with LedgerUnwritable after the time
   * limit, but the write continues.
   */
  async append(entries: LedgerEntry[]): Promise<void> {
    if (this.#next === null) {
      const written = this.#idle.then(() => this.#writeNext())
      this.#next = { lines: [], written }
      this.#idle = written.catch(() => undefined)
    }
    const { lines, written } = this.#next
    if (lines.length >= WAITING_MAX_LINES) throw new LedgerUnwritable('ETIMEDOUT')
    lines.push(...entries.map((entry) => `${lineOf(entry)}\n`))
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new LedgerUnwritable('ETIMEDOUT')), this.#timeoutMs)
    })
    await Promise.race([written, late]).finally(() => clearTimeout(timer))
  }

  async #writeNext(): Promise<void> {
    const { lines = [] } = this.#next ?? {}
    this.#next = null
    const path = this.#path ?? join(this.#directory, newFileName())
    try {
      await this.#requireSameDirectory()
      await appendFile(path, lines.join(''), { encoding: 'latin1', mode: FILE_MODE, flush: true })
      await syncDirectory(this.#directory)
      this.#path = path
    } catch (error) {
      // The file may end with a part of a line, so nothing is appended to it. Repeated DELETEs must not fill the disk with empty files.
      if (this.#path === null) await unlink(path).catch(() => undefined)
      this.#path = null
      const { code, message } = error as Error & { code?: string }
      throw new LedgerUnwritable(code ?? message)
    }
  }

  /** A directory that was unmounted or replaced lacks the lines that this process has confirmed. Writing there would hide their loss. */
  async #requireSameDirectory(): Promise<void> {
    const found = await stat(this.#directory, { bigint: true })
    this.#identity ??= found
    if (found.dev === this.#identity.dev && found.ino === this.#identity.ino) return
    throw new Error('another directory has its place. Bring the former one back, or restart the service')
  }
}

const MS = (time: string) => `floor(extract(epoch from ${time}) * 1000)::float8`

const ERASURE = `channel_oa_id as "accountId", encode(person_hash, 'hex') as hash, member_id as "memberId",
           ${MS('erased_at')} as "erasedAt"`

/** $1 bigint: account; $2 bigint: member. An ordered range, so that a plan cannot read the whole backlog by the index of times. */
const selectOfMember = statement('select-unrecorded-erasure-of-member')`
    select ${ERASURE}
      from erased_person where channel_oa_id = $1 and member_id >= $2 and member_id <= $2 and not in_ledger
     order by member_id`

/** $1 bigint: account; $2 text: user id. `coalesce` keeps a plan from reading the backlog by a partial index. */
const selectOfPerson = statement('select-unrecorded-erasure-of-person')`
    select ${ERASURE}
      from erased_person
     where channel_oa_id = $1 and not coalesce(in_ledger, true)
       and person_hash = (select person_hash(person_key, $2) from official_account where id = $1)`

/**
 * $1 bigint: account; $2 text: hash; $3 bigint: member; $4 float8: milliseconds. A person who was erased again meanwhile is not marked. The
 * commit does not wait for the disk: if a crash loses it, the erasure is only recorded again.
 */
const markRecorded = statement('mark-recorded-erasure')`
    update erased_person set in_ledger = true
     where channel_oa_id = $1 and person_hash = decode($2, 'hex') and member_id is not distinct from $3::bigint
       and ${MS('erased_at')} = $4 and set_config('synchronous_commit', 'off', true) is not null`

/** $1 int: limit. If the transaction fails after the write, the erasures are only recorded again. */
const takeOldestErasures = statement('take-oldest-unrecorded-erasures')`
    with marked as (
      update erased_person set in_ledger = true
       where ctid = any (array(
         select ctid from erased_person where not in_ledger order by erased_at limit $1 for update skip locked))
      returning *)
    select ${ERASURE} from marked order by erased_at`

/** $1 int: limit */
const takeOldestRevocations = statement('delete-oldest-unrecorded-revocations')`
    with oldest as (select id from unrecorded_revocation order by id limit $1),
         deleted as (delete from unrecorded_revocation u using oldest where u.id = oldest.id
                     returning u.id, u.kind, u.object_id, u.revoked_at)
    select kind, object_id as id, ${MS('revoked_at')} as "revokedAt" from deleted order by deleted.id`

/** Host, process and time are for people. The random text makes the name unique. */
function newFileName(): string {
  const host = hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_')
  const time = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  return `${time}-${host}-${process.pid}-${randomBytes(4).toString('hex')}.ledger`
}

/** Without this, a new file may be missing after a power failure. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path)
  await directory.sync().finally(() => directory.close())
}
