/**
 * Repeats the erasures of the ledger that a restored database lacks:
 *
 * 1. Lines that the database lacks are collected, up to ERASURES_PER_ROUND.
 * 2. For each of their accounts, flushes, senders and erasures are locked out until step 4 ends. The hashes of the lines
 *    are compared with those of all user ids in the account's rows.
 * 3. A transaction per batch erases the people as a DELETE does, and stores the erasures with the times of the ledger.
 * 4. The locks are released.
 *
 * The database has the erasures of each committed batch. So the next run continues an interrupted one. Until a run is complete, a row
 * of pending_reapply refuses every start: erased people of the remaining accounts are still visible. Planner idioms: docs/planner.md.
 */
import type { AccountId } from '../../accounts/account.ts'
import { FatalError } from '../../errors.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import type { Database } from '../../postgres/database.ts'
import { lockOutSendersAndFlushes } from '../../postgres/erasure-lock.ts'
import { LOCK_TIMEOUT, sqlStateOf } from '../../postgres/faults.ts'
import { begin, commit, type Queryable, statement } from '../../postgres/statement.ts'
import type { LedgerDamage, LedgerErasure } from './ledger-files.ts'
import { compareLedger } from './unknown-erasures.ts'

/** Limits the memory to about 60 MB. All rows of an account are read once per round. */
const ERASURES_PER_ROUND = 250_000
/** Erasures per transaction. */
const ERASURES_PER_BATCH = 5_000

export interface Reapplied {
  /** lines of the ledger */
  lines: number
  /** erasures that the database lacked */
  erasures: number
  /** people about whom the database had data */
  people: number
  /** of them, members */
  members: number
}

/**
 * Deletes the row of pending_reapply only with completeReapply.
 * @param damage receives what could not be read
 * @param onProgress receives the numbers so far; `lines` are those that were compared
 */
export async function reapplyErasures(
  database: Pick<Database, 'session'>,
  directory: string,
  damage: LedgerDamage,
  onProgress: (reapplied: Reapplied) => void = () => undefined,
): Promise<Reapplied> {
  const reapplied: Reapplied = { lines: 0, erasures: 0, people: 0, members: 0 }
  await database.session(async (session) => {
    await session.query(prepareSession)
    let round: LedgerErasure[] = []
    for await (const { batch, unknown } of compareLedger(session, directory, damage)) {
      reapplied.lines += batch.length
      onProgress(reapplied)
      round = round.concat(unknown)
      if (round.length < ERASURES_PER_ROUND) continue
      await eraseRound(session, round, reapplied, onProgress)
      round = []
    }
    await eraseRound(session, round, reapplied, onProgress)
  })
  return reapplied
}

async function eraseRound(
  session: Queryable,
  erasures: LedgerErasure[],
  reapplied: Reapplied,
  onProgress: (reapplied: Reapplied) => void,
): Promise<void> {
  if (erasures.length > 0) await session.query(beginReapply)
  for (const [accountId, ofAccount] of groupByAccount(erasures)) {
    await holdAccount(session, accountId)
    const userIds = await findUserIds(session, accountId, ofAccount)
    for (let start = 0; start < ofAccount.length; start += ERASURES_PER_BATCH) {
      const batch = ofAccount.slice(start, start + ERASURES_PER_BATCH)
      const people = [...new Set(batch.flatMap(({ hash }) => userIds.get(hash) ?? []))]
      reapplied.members += await eraseBatch(session, accountId, batch, people)
      reapplied.erasures += batch.length
      reapplied.people += people.length
      onProgress(reapplied)
    }
    await session.query(releaseAccount, [accountId])
  }
}

/** Lets services start. Call it when every line is applied. */
export async function completeReapply(transaction: Queryable): Promise<void> {
  await transaction.query(deletePendingReapply)
}

function groupByAccount(erasures: LedgerErasure[]): Map<AccountId, LedgerErasure[]> {
  const groups = new Map<AccountId, LedgerErasure[]>()
  for (const erasure of erasures) {
    const group = groups.get(erasure.accountId)
    if (group === undefined) groups.set(erasure.accountId, [erasure])
    else group.push(erasure)
  }
  return groups
}

/**
 * The locks of a transaction are taken in the usual order. Then the session takes them as well, and keeps them. If this process ends,
 * its session ends and releases them.
 */
async function holdAccount(session: Queryable, accountId: AccountId): Promise<void> {
  await session.query(begin)
  await session.query(lockOutSendersAndFlushes, [accountId]).catch((error) => {
    if (sqlStateOf(error) !== LOCK_TIMEOUT) throw error
    throw new FatalError(
      `account ${accountId} is in use by another process that does not release it, such as another "erasures reapply". Stop all ` +
        'services, then run the command again.',
    )
  })
  await session.query(keepLocks, [accountId])
  await session.query(commit)
}

/** Returns the user ids by hash, of the people about whom the database has data. */
async function findUserIds(
  session: Queryable,
  accountId: AccountId,
  erasures: LedgerErasure[],
): Promise<Map<string, string>> {
  const hashes = textArray(erasures.map(({ hash }) => hash))
  const rows = await session.query<{ hash: string; user_id: string }>(selectUserIdsByHash, [
    accountId,
    hashes,
  ])
  return new Map(rows.map(({ hash, user_id }) => [hash, user_id]))
}

/** Returns the number of erased members. */
async function eraseBatch(
  session: Queryable,
  accountId: AccountId,
  erasures: LedgerErasure[],
  userIds: string[],
): Promise<number> {
  const people = textArray(userIds)
  const memberIds = int8Array(erasures.map(({ memberId }) => memberId))
  await session.query(begin)
  await session.query(storeErasures, [
    accountId,
    textArray(erasures.map(({ hash }) => hash)),
    timestamptzArray(erasures.map(({ erasedAt }) => erasedAt)),
    memberIds,
  ])
  const [erased] = await session.query<{ members: number }>(erasePeople, [accountId, people])
  await session.query(storeTombstones, [accountId, memberIds])
  await session.query(commit)
  return erased?.members ?? 0
}

/**
 * Only the caller's last commit waits for the disk, and therefore for all commits before it. Custom plans know the lengths of the
 * arrays, which are from one to ERASURES_PER_ROUND.
 */
const prepareSession = statement('prepare-session-for-reapplying')`
    select set_config('synchronous_commit', 'off', false), set_config('work_mem', '64MB', false),
           set_config('plan_cache_mode', 'force_custom_plan', false)`

/** The database may have been restored by other means than `restore`, which inserts the row. */
const beginReapply = statement(
  'begin-reapply',
)`insert into pending_reapply default values on conflict do nothing`

const deletePendingReapply = statement('delete-pending-reapply')`delete from pending_reapply`

/** $1 bigint: account. The keys of lock_out_sending() and lock_out_flushes(). */
const keepLocks = statement('keep-locks-of-account')`
    select pg_advisory_lock(7302, account_lock($1)), pg_advisory_lock(7301, account_lock($1))`

/** $1 bigint: account. */
const releaseAccount = statement('release-locks-of-account')`
    select pg_advisory_unlock(7301, account_lock($1)), pg_advisory_unlock(7302, account_lock($1))`

/**
 * $1 bigint: account; $2 text[]: hashes in hexadecimal digits. Each distinct user id is hashed once. Every event meets the condition
 * on `received_at`, which allows the use of the index event_account.
 */
const selectUserIdsByHash = statement('select-user-ids-by-hash')`
    with person as materialized (
      select user_id from audience_member where channel_oa_id = $1
       union select user_id from tracked_activity where channel_oa_id = $1
       union select user_id from event where channel_oa_id = $1 and received_at > '-infinity' and user_id is not null
       union select unnest(other_user_ids) from event
              where channel_oa_id = $1 and received_at > '-infinity' and other_user_ids is not null
       union select user_id from tracking_event
              where channel_oa_id = $1 and received_at > '-infinity' and user_id is not null
    ), hashed as materialized (
      select p.user_id, encode(person_hash(a.person_key, p.user_id), 'hex') as hash
        from person p join official_account a on a.id = $1
    )
    select distinct h.hash, h.user_id from hashed h join unnest($2::text[]) as line (hash) using (hash)`

/** $1 bigint: account; $2 text[]: user ids. The account is locked, so no event is later. */
const erasePeople = statement('erase-people-again')`
    select members from erase_people($1, $2, 9223372036854775807, null)`

/** $1 bigint: account; $2 text[]: hashes in hexadecimal digits; $3 timestamptz[]: times; $4 bigint[]: members, null for nobody. */
const storeErasures = statement('store-erasures-again')`
    insert into erased_person as e (channel_oa_id, person_hash, erased_at, member_id, in_ledger)
    select distinct on (line.hash) $1::bigint, decode(line.hash, 'hex'), line.erased_at, line.member_id, true
      from unnest($2::text[], $3::timestamptz[], $4::bigint[]) as line (hash, erased_at, member_id)
     order by line.hash, line.erased_at desc
        on conflict (channel_oa_id, person_hash) do update
           set erased_at = excluded.erased_at, member_id = coalesce(excluded.member_id, e.member_id), in_ledger = true
     where e.erased_at < excluded.erased_at`

/**
 * $1 bigint: account; $2 bigint[]: members, null for nobody. A member who was added after the backup is not in the database, but
 * clients and endpoints may know the id. The trigger has stored the tombstones of deleted members.
 */
const storeTombstones = statement('store-tombstones-again')`
    with lost as (
      insert into erased_member (channel_oa_id, organization_id, id)
      select distinct a.id, a.organization_id, line.member_id
        from unnest($2::bigint[]) as line (member_id) join official_account a on a.id = $1
       where line.member_id is not null
         and not exists (select from audience_member m where m.channel_oa_id = $1 and m.id = line.member_id)
          on conflict (channel_oa_id, id) do nothing
      returning id
    )
    select skip_member_ids(max(id)) from lost where id < 4611686018427387904`
