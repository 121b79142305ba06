/** The members of an account, as operators see, change and erase them, and the accounts of one person. */
import { scopeOfAccount } from '../accounts/scope.ts'
import { refuseInput } from '../http/validate.ts'
import { type AccountId, LINE_USER_ID, type OrganizationId } from '../ids.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { erasePerson, eraseUser, type OnErased } from './erasure/erase.ts'
import type { ErasureLedger } from './erasure/erasure-ledger.ts'
import { type Member, memberJson, withTrackedActivity } from './member.ts'
import { type MemberUpdate, updateMember as updateMemberOf } from './update.ts'

/** Read it with the actor's organizations, so that it is one of them. */
type AccountOf = { id: AccountId; organizationId: OrganizationId }

/** $1 account id bigint; $2 user id text; $3 member id bigint or null. A user id takes precedence over an equal member id. */
const selectMember = statement('select-member')`
    select ${memberJson} as json
      from audience_member m ${withTrackedActivity}
     where m.channel_oa_id = $1 and (m.user_id = $2 or m.id = $3)
     order by m.user_id = $2 desc
     limit 1`

export async function findMember(
  database: Queryable,
  accountId: AccountId,
  userId: string,
  id: bigint | null,
): Promise<Member | null> {
  const [found] = await database.query<{ json: string }>(selectMember, [accountId, userId, id])
  return found === undefined ? null : JSON.parse(found.json)
}

export type TimelineEntry = {
  at: string
  receivedAt: string | null
  /** the event's source, or `client` for an edit */
  source: string
  kind: string
  effect: TimelineEffect
  eventId: bigint | null
}

/** What the event or the edit did to the member. */
export type TimelineEffect =
  | { kind: 'following' | 'blocked' | 'joined_or_left' | 'conversation' | 'activity' | 'seen' }
  /** a proven event that says where the person came from */
  | { kind: 'touch'; source: string | null; campaign: string | null }
  | { kind: 'not_applied'; failure: string }
  /** changes null: only the names of the fields are stored; by null: another program */
  | { kind: 'edited'; fields: string[]; changes: MemberChanges | null; by: EditAuthor | null }

/** [before, after], null if absent, as the trigger record_member_edit stores them. */
export type MemberChanges = {
  externalId?: [string | null, string | null]
  tags?: { added: string[]; removed: string[] }
  attributes?: Record<string, [unknown, unknown]>
}

/** The client's name is null if the client of the key has none, or if the key no longer exists. */
export type EditAuthor =
  | { keyId: string; clientId: string | null; clientName: string | null }
  /** an operator's address, `token`, or `user@host` of a command */
  | { actor: string }

/** Entries are ordered by time in microseconds since 1970, then by part, then by id. */
type TimelinePosition = { atUs: bigint; part: number; id: bigint }

/** Throws `invalid_input` for a text that is not `next` of a page. PostgreSQL's times begin 6,684 years before 1970. */
export function readTimelinePosition(field: string, text: string): TimelinePosition {
  const [, atUs, part, id] = /^(-\d{1,17}|\d{1,18})\.([12])\.(\d{1,18})$/.exec(text) ?? []
  if (atUs === undefined || part === undefined || id === undefined)
    refuseInput(field, 'is not the end of a page of this timeline')
  return { atUs: BigInt(atUs), part: Number(part), id: BigInt(id) }
}

/**
 * The newest follow or unfollow by its own time decides the relationship, so events are ordered by when they happened.
 *
 * $1 account id bigint; $2 user id text; $3 member id bigint; $4 limit int; $5 to $7 the position of the last entry of the page before
 * (time in microseconds bigint, part int, id bigint), or null
 */
const selectTimeline = statement('select-timeline')`
    select iso(entry.at) as at, iso(entry.received_at) as "receivedAt", entry.source, entry.kind, entry.event_id as "eventId",
           entry.effect || case when entry.key_id is null then '{}'
             else jsonb_build_object('by', jsonb_build_object('keyId', entry.key_id::text, 'clientId', c.client_id,
                                                              'clientName', nullif(c.name, ''))) end as effect,
           (extract(epoch from entry.at) * 1000000)::bigint as "atUs", entry.part, entry.id
      from (
        (select occurred_at as at, received_at, source, kind,
                case when failure is not null then jsonb_build_object('kind', 'not_applied', 'failure', failure)
                     else coalesce(case when source = 'tracking' then (
                       select jsonb_build_object('kind', 'touch', 'source', t.source, 'campaign', t.campaign) from member_touch t
                        where t.channel_oa_id = $1 and t.user_id = $2 and t.occurred_at = stored_event.occurred_at
                        order by t.key limit 1) end,
                     jsonb_build_object('kind', case
                       when user_id is distinct from $2 then 'joined_or_left'
                       when kind = 'follow' then 'following'
                       when kind = 'unfollow' then 'blocked'
                       when source = 'mbox' then 'conversation'
                       when source = 'tracking' then 'activity'
                       else 'seen' end))
                end as effect,
                null::bigint as key_id, id as event_id, 2 as part, id
           from stored_event
          where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2])
            and ($5::bigint is null
                 or (occurred_at, 2, id) < (timestamptz 'epoch' + $5 * interval '1 microsecond', $6::int, $7::bigint))
          order by occurred_at desc, id desc
          limit $4)
        union all
        (select e.edited_at, null, 'client', 'edit',
                jsonb_build_object('kind', 'edited', 'fields', e.fields, 'changes', e.changes,
                                   'by', case when e.actor is not null then jsonb_build_object('actor', e.actor) end),
                e.api_key_id, null, 1, e.id
           from member_edit e
          where e.channel_oa_id = $1 and e.member_id = $3
            and ($5::bigint is null
                 or (e.edited_at, 1, e.id) < (timestamptz 'epoch' + $5 * interval '1 microsecond', $6::int, $7::bigint))
          order by e.edited_at desc, e.id desc
          limit $4)
      ) as entry
      left join api_key k on k.id = entry.key_id
      left join api_client c on c.id = k.api_client_id
     order by entry.at desc, entry.part desc, entry.id desc
     limit $4`

/** The events and edits of a member, newest first. `next` null: this is the last page. */
export async function memberTimeline(
  database: Queryable,
  accountId: AccountId,
  { id, userId }: Pick<Member, 'id' | 'userId'>,
  limit: number,
  after: TimelinePosition | null = null,
): Promise<{ entries: TimelineEntry[]; next: string | null }> {
  const position = after === null ? [null, null, null] : [after.atUs, after.part, after.id]
  const values = [accountId, userId, id, limit, ...position]
  const rows = await database.query<TimelineEntry & TimelinePosition>(selectTimeline, values)
  const last = rows.length < limit ? undefined : rows.at(-1)
  return {
    entries: rows.map(({ atUs, part, id, ...entry }) => entry),
    next: last === undefined ? null : `${last.atUs}.${last.part}.${last.id}`,
  }
}

/** Accounts of one provider of LINE, which a page and a job name. */
export const MEMBERSHIPS_MAX = 1_000

export type Membership = {
  accountId: AccountId
  accountName: string
  organizationId: OrganizationId
  memberId: bigint
}

/** Driven by audience_member_any_user. $1 organization ids bigint[], null: all; $2 user id text; $3 maximum number of rows int */
export const selectMemberships = statement('select-memberships')`
    select a.id as "accountId", a.name as "accountName", a.organization_id as "organizationId", m.id as "memberId"
      from (select id, channel_oa_id, organization_id, user_id from audience_member
             where hashtextextended(user_id, 0) = hashtextextended($2, 0) offset 0) m
      join lateral (
        select id, name, organization_id from official_account
         where id = m.channel_oa_id and organization_id = m.organization_id
           and visible(organization_id, $1) offset 0) a on true
     where m.user_id = $2
     order by a.name, a.id
     limit $3`

/** An id of another form than LINE's may belong to different people in different accounts, so it has none. */
export async function findMemberships(
  database: Queryable,
  organizationIds: OrganizationIds,
  userId: string,
): Promise<Membership[]> {
  if (!LINE_USER_ID.test(userId)) return []
  return database.query<Membership>(selectMemberships, [organizationIds, userId, MEMBERSHIPS_MAX])
}

/** The account, and those of which the person is a member. */
export function accountsOf({ id, organizationId }: AccountOf, memberships: Membership[]): AccountOf[] {
  const others = memberships.filter(({ accountId }) => accountId !== id)
  return [
    { id, organizationId },
    ...others.map((other) => ({ id: other.accountId, organizationId: other.organizationId })),
  ]
}

// Changes. The activity log has the ids of members and the names of changed fields, but no values.

export function updateMember(
  database: Transactions,
  actor: Actor,
  account: AccountOf,
  id: bigint,
  update: MemberUpdate,
  version: bigint,
): Promise<{ version: bigint; json: string }> {
  return database.transaction(async (transaction) => {
    const updated = await updateMemberOf(transaction, scopeOfAccount(account, actor.name), id, update, [
      version,
    ])
    // Nothing has changed.
    if (updated.version === version) return updated
    await recordActivity(transaction, actor, {
      action: 'member.updated',
      object: { kind: 'member', id },
      organizationId: account.organizationId,
      accountId: account.id,
      changes: Object.fromEntries(Object.keys(update).map((field) => [field, 'replaced'])),
    })
    return updated
  })
}

/** Returns false if the account has no such member. */
export function eraseMember(
  database: Transactions,
  ledger: ErasureLedger | null,
  actor: Actor,
  account: AccountOf,
  id: bigint,
  now: () => number,
): Promise<boolean> {
  return erasePerson(
    database,
    ledger,
    scopeOfAccount(account, actor.name),
    id,
    now,
    null,
    recordErasure(actor, account),
  )
}

/** Erases a person who need not be a member. Returns whether the person was one. */
export function eraseByUserId(
  database: Transactions,
  ledger: ErasureLedger | null,
  actor: Actor,
  account: AccountOf,
  userId: string,
  now: () => number,
): Promise<boolean> {
  return eraseUser(
    database,
    ledger,
    scopeOfAccount(account, actor.name),
    userId,
    now,
    recordErasure(actor, account),
  )
}

/** The id of a person who was never a member is not recorded: the user id is personal. */
function recordErasure(actor: Actor, { id: accountId, organizationId }: AccountOf): OnErased {
  return (transaction, memberId) =>
    recordActivity(transaction, actor, {
      action: 'member.erased',
      object: { kind: 'member', id: memberId },
      organizationId,
      accountId,
    })
}
