/**
 * Repeats the erasures of the ledger that a restored database lacks. A transaction per account locks flushes, senders and erasures out,
 * finds the people by comparing hashes with those of all user ids in the account's rows, erases them as a DELETE does, and stores the
 * erasures with the times of the ledger.
 *
 * The next run continues an interrupted one. Until a run is complete, a row of pending_reapply refuses every start: erased people of
 * the remaining accounts are still visible. Planner idioms: docs/planner.md.
 */
import { lockOutSendersAndFlushes } from '../../accounts/erasure-lock.ts'
import { FatalError } from '../../errors.ts'
import type { AccountId } from '../../ids.ts'
import { recordActivity } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import type { Database } from '../../postgres/database.ts'
import { LOCK_TIMEOUT, sqlStateOf } from '../../postgres/faults.ts'
import { begin, commit, type Queryable, statement } from '../../postgres/statement.ts'
import { compareLedger, describeDamage } from './compare-ledger.ts'
import { LedgerDamage, type LedgerErasure } from './ledger-files.ts'

interface Reapplied {
  lines: number
  /** erasures that the database lacked */
  erasures: number
  /** people about whom the database had data */
  people: number
  members: number
}

/** A million unknown erasures take 300 MB of memory. Throws a FatalError after all other lines are applied if a line cannot be read. */
export async function reapplyLedger(database: Database, actor: Actor, directory: string): Promise<Reapplied> {
  const damage = new LedgerDamage()
  const reapplied: Reapplied = { lines: 0, erasures: 0, people: 0, members: 0 }
  await database.session(async (session) => {
    await session.query(prepareSession)
    const accounts = new Map<AccountId, LedgerErasure[]>()
    for await (const { batch, unknown } of compareLedger(session, directory, damage)) {
      for (const erasure of unknown) {
        const ofAccount = accounts.get(erasure.accountId) ?? []
        ofAccount.push(erasure)
        accounts.set(erasure.accountId, ofAccount)
      }
      reapplied.lines += batch.length
    }
    if (accounts.size > 0) await session.query(beginReapply)
    for (const [accountId, erasures] of accounts) {
      const { people, members } = await eraseAgain(session, accountId, erasures)
      reapplied.erasures += erasures.length
      reapplied.people += people
      reapplied.members += members
    }
  })
  await database.transaction(async (transaction) => {
    if (damage.unreadable === 0) await transaction.query(deletePendingReapply)
    if (reapplied.erasures === 0) return
    await recordActivity(transaction, actor, {
      action: 'members.erased_again',
      object: { kind: 'member', id: null },
      organizationId: null,
      changes: { ...reapplied },
    })
  })
  if (damage.unreadable === 0) return reapplied
  throw new FatalError(
    `${describeDamage(damage)} All other lines are applied. Restore the file from a copy, or remove the lines if ` +
      'their erasures are not needed. Then run the command again.',
  )
}

async function eraseAgain(
  session: Queryable,
  accountId: AccountId,
  erasures: LedgerErasure[],
): Promise<{ people: number; members: number }> {
  await session.query(begin)
  await session.query(lockOutSendersAndFlushes, [accountId]).catch((error) => {
    if (sqlStateOf(error) !== LOCK_TIMEOUT) throw error
    throw new FatalError(
      `account ${accountId} is in use by another process that does not release it, such as another "erasures reapply". Stop all ` +
        'services, then run the command again.',
    )
  })
  const hashes = textArray(erasures.map(({ hash }) => hash))
  const memberIds = int8Array(erasures.map(({ memberId }) => memberId))
  const times = timestamptzArray(erasures.map(({ erasedAt }) => erasedAt))
  const people = await session.query<{ user_id: string }>(selectUserIdsByHash, [accountId, hashes])
  await session.query(storeErasures, [accountId, hashes, times, memberIds])
  const userIds = textArray(people.map(({ user_id }) => user_id))
  const [erased] = await session.query<{ members: number }>(erasePeople, [accountId, userIds])
  await session.query(storeTombstones, [accountId, memberIds])
  await session.query(commit)
  return { people: people.length, members: erased?.members ?? 0 }
}

/** Custom plans know the lengths of the arrays, which are from one to a million. */
const prepareSession = statement('prepare-session-for-reapplying')`
    select set_config('work_mem', '64MB', false), set_config('plan_cache_mode', 'force_custom_plan', false)`

/** The database may have been restored by other means than `restore`, which inserts the row. */
const beginReapply = statement(
  'begin-reapply',
)`insert into pending_reapply default values on conflict do nothing`

const deletePendingReapply = statement('delete-pending-reapply')`delete from pending_reapply`

/** $1 bigint: account; $2 text[]: hashes in hexadecimal digits. The condition on `received_at` allows the use of event_account. */
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
    select user_id from hashed where hash in (select unnest($2::text[]))`

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

/** $1 bigint: account; $2 bigint[]: members. Clients may know the id of one who was added after the backup. Deleted ones have a tombstone. */
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
