/** Imports the platform's list of followers: people who followed before this service received events. */
import type { Account } from '../../accounts/account.ts'
import { explainRefusal } from '../../accounts/checks.ts'
import { lockOutErasures } from '../../accounts/erasure-lock.ts'
import { USER_ID_MAX_LENGTH } from '../../config/limits.ts'
import { AppError, FatalError } from '../../errors.ts'
import type { AccountId } from '../../ids.ts'
import type { PlatformResult } from '../../line-api/call.ts'
import { FOLLOWERS_PAGE_SIZE, type LineApi } from '../../line-api/client.ts'
import type { FollowersPage } from '../../line-api/line-responses.ts'
import { violatedConstraint } from '../../postgres/faults.ts'
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { NO_KEY } from '../member.ts'

/** The platform's continuation token expires after 24 hours. An older import starts again. */
const CONTINUATION_MAX_AGE_MS = 23 * 3_600_000

export interface ImportProgress {
  /** Followers listed so far, over all runs of this import. */
  seen: number
  added: number
  /** Erased people. They stay erased until they send an event. */
  skipped: number
}

interface ImportState extends ImportProgress {
  /** The platform's continuation token. Null: at the start or the end of the list. */
  next: string | null
  /** When the token was issued. 0 at the end of the list, so that the next import starts again. */
  atMs: number
  completedAt?: string
}

const selectState = statement('select-followers-import')`
    select followers_import as state from official_account where id = $1`

const storeState = statement('store-followers-import')`
    update official_account set followers_import = $2 where id = $1`

type OnImported = (transaction: Queryable, total: ImportProgress) => Promise<void>

/**
 * A page is committed together with its continuation token, so an interrupted import continues there. Throws `platform_unavailable`, and
 * a FatalError if the platform refuses the request. If it refused the token, the next import starts again.
 */
export async function importNextFollowers(
  database: Transactions,
  lineApi: LineApi,
  account: Account,
  onImported: OnImported,
): Promise<ImportProgress & { isComplete: boolean }> {
  const state = await readState(database, account.id)
  const atMs = Date.now()
  const page = await lineApi.followers(account, FOLLOWERS_PAGE_SIZE, state.next ?? undefined)
  if (state.next !== null && !page.ok && page.fault.type === 'refused' && page.fault.status === 400)
    await database.query(storeState, [account.id, JSON.stringify(FROM_THE_START)])
  const followers = followersOf(page)
  if (followers.next !== null && followers.next === state.next)
    throw new FatalError('LINE returned the same page of followers twice. Run the command again later.')
  return storePage(database, account, state, followers, atMs, onImported)
}

const FROM_THE_START: ImportState = { next: null, atMs: 0, seen: 0, added: 0, skipped: 0 }

async function readState(database: Queryable, id: AccountId): Promise<ImportState> {
  const [row] = await database.query<{ state: ImportState | null }>(selectState, [id])
  const state = row?.state ?? FROM_THE_START
  return state.atMs > Date.now() - CONTINUATION_MAX_AGE_MS ? state : FROM_THE_START
}

export async function isImportCompleted(database: Queryable, id: AccountId): Promise<boolean> {
  const [row] = await database.query<{ state: ImportState | null }>(selectState, [id])
  return row?.state?.completedAt !== undefined
}

function followersOf(page: PlatformResult<FollowersPage>): FollowersPage {
  if (page.ok) return page.value
  const { fault } = page
  if (fault.type === 'unavailable')
    throw new AppError('platform_unavailable', { retryAfterSeconds: fault.retryAfterSeconds })
  if (fault.type === 'refused' && fault.status === 403)
    throw new FatalError(
      'LINE lets only verified and premium accounts list their followers, and this is neither (status 403)',
    )
  throw new FatalError(explainRefusal(fault, 'LINE refuses the list of followers')[1])
}

/**
 * $1 bigint: account; $2 text[]: user ids; $3 timestamptz: when the list was requested; $4 uuid: NO_KEY. The list is the state at that
 * time, so newer events win and older ones lose.
 */
const addFollowers = statement('add-followers')`
    with follower as (
      select user_id, a.organization_id,
             exists (select from erased_person e
                      where e.channel_oa_id = a.id and e.person_hash = person_hash(a.person_key, follower.user_id))
             -- An erased person who came back is a member.
             and not exists (select from audience_member m
                              where m.channel_oa_id = a.id and m.user_id = follower.user_id) as is_erased
        from official_account a, unnest($2::text[]) as follower (user_id) where a.id = $1
    ), applied as (
      insert into audience_member as m (channel_oa_id, organization_id, user_id,
                                        relationship, relationship_at, relationship_key)
      select $1, organization_id, user_id, 'following', $3, $4 from follower where not is_erased order by user_id
          on conflict on constraint audience_member_user do update set
             -- Also for members who already follow, so that an older unfollow that arrives late loses.
             relationship = 'following', relationship_at = $3, relationship_key = $4,
             profile_due_at = case when m.relationship = 'following' then m.profile_due_at else now() end,
             updated_at = case when m.relationship = 'following' then m.updated_at
                          else greatest(clock_timestamp(), m.updated_at) end,
             change = case when m.relationship = 'following' then m.change else next_change() end
       where (m.relationship_at < $3) is not false
      returning m.xmax = 0 as is_new
    )
    select (select count(*) from applied where is_new)::int as added,
           (select count(*) from follower where is_erased)::int as skipped`

async function storePage(
  database: Transactions,
  { id }: Account,
  before: ImportState,
  { userIds, next }: FollowersPage,
  atMs: number,
  onImported: OnImported,
): Promise<ImportProgress & { isComplete: boolean }> {
  const usable = userIds.filter(
    (each) => each !== '' && each.length <= USER_ID_MAX_LENGTH && isStorableText(each),
  )
  const followers = [...new Set(usable)]
  const isComplete = next === null
  const time = new Date(atMs).toISOString()
  const store = async (transaction: Queryable) => {
    await transaction.query(lockOutErasures, [id])
    const values = [id, followers, time, NO_KEY]
    const [counts] = await transaction.query<{ added: number; skipped: number }>(addFollowers, values)
    const { added = 0, skipped = 0 } = counts ?? {}
    const progress = {
      seen: before.seen + followers.length,
      added: before.added + added,
      skipped: before.skipped + skipped,
    }
    const state = { ...progress, next, ...(isComplete ? { atMs: 0, completedAt: time } : { atMs }) }
    await transaction.query(storeState, [id, JSON.stringify(state)])
    if (isComplete) await onImported(transaction, progress)
    return { ...progress, isComplete }
  }
  try {
    return await database.transaction(store)
  } catch (error) {
    if (violatedConstraint(error) !== MEMBER_ID_TAKEN) throw error
    await skipTakenMemberIds(database.pipeline, [id])
    return database.transaction(store)
  }
}
