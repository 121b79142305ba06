/** The log of who changed what. A row is written in the transaction of its change, and never contains a secret or personal text. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Actor, OrganizationIds } from './actor.ts'

/**
 * Everything that is recorded. The trigger record_suspension writes `account.suspended` and `account.resumed`, and the statement
 * pause-endpoint writes `endpoint.gone`.
 */
export const ACTIONS = [
  'organization.added',
  'organization.updated',
  'organization.removed',
  'account.added',
  'account.updated',
  'account.verified',
  'account.webhook_set',
  'account.followers_imported',
  'account.suspended',
  'account.resumed',
  'account.removed',
  'endpoint.added',
  'endpoint.updated',
  'endpoint.paused',
  'endpoint.resumed',
  'endpoint.gone',
  'endpoint.tested',
  'endpoint.rotated',
  'endpoint.rotation_finished',
  'endpoint.retried',
  'endpoint.removed',
  'client.added',
  'client.revoked',
  'client.removed',
  'key.added',
  'key.revoked',
  'member.updated',
  'member.erased',
  'members.imported',
  'members.exported',
  'members.tagged',
  'events.retried',
  'operator.added',
  'operator.updated',
  'operator.disabled',
  'operator.enabled',
  'operator.invited',
  'operator.joined',
  'job.started',
  'job.cancelled',
] as const
export type Action = (typeof ACTIONS)[number]

export type ObjectKind =
  | 'organization'
  | 'account'
  | 'endpoint'
  | 'client'
  | 'key'
  | 'member'
  | 'event'
  | 'operator'
  | 'job'

/**
 * By field: [before, after], `replaced` for a secret, or one value for a fact such as a number of members. Free text about a person
 * does not belong here.
 */
export type Changes = Record<string, unknown>

export interface NewActivity {
  action: Action
  object: { kind: ObjectKind; id: bigint | null }
  /** null: it concerns no organization, so only operators of all organizations see it */
  organizationId: OrganizationId | null
  accountId?: AccountId | null
  changes?: Changes
}

/**
 * $1 actor kind text, $2 operator id bigint or null, $3 actor text, $4 action text, $5 organization id bigint or null,
 * $6 account id bigint or null, $7 object kind text, $8 object id text or null, $9 changes jsonb, $10 request id text or null
 */
const insertActivity = statement('insert-activity')`
    insert into activity (actor_kind, operator_id, actor, action, organization_id, channel_oa_id, object_kind, object_id, changes,
                          request_id)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

/** Call it in the transaction of the change. */
export async function recordActivity(
  transaction: Queryable,
  { kind, operatorId, name, requestId }: Actor,
  { action, object, organizationId, accountId = null, changes = {} }: NewActivity,
): Promise<void> {
  const objectId = object.id === null ? null : String(object.id)
  await transaction.query(insertActivity, [
    ...[kind, operatorId, name, action, organizationId, accountId],
    ...[object.kind, objectId, toJson(changes), requestId],
  ])
}

const toJson = (changes: Changes) =>
  JSON.stringify(changes, (_name, value) => (typeof value === 'bigint' ? String(value) : value))

/** The fields whose values differ, as [before, after]. Fields that `after` does not have are unchanged. */
export function changesBetween<T extends object>(before: T, after: Partial<T>): Changes {
  const changes: Changes = {}
  for (const [name, value] of Object.entries(after)) {
    const earlier = before[name as keyof T]
    if (toJson({ value }) !== toJson({ value: earlier })) changes[name] = [earlier ?? null, value]
  }
  return changes
}

export type Activity = {
  id: bigint
  occurredAt: string
  actorKind: Actor['kind']
  operatorId: bigint | null
  actor: string
  action: Action
  organizationId: OrganizationId | null
  organizationName: string | null
  accountId: AccountId | null
  accountName: string | null
  objectKind: ObjectKind
  objectId: string | null
  changes: Changes
  requestId: string | null
}

// Parameters of all lists: $1 organization ids bigint[], null: all; $2 before this id bigint; $3 maximum number of rows int.
// Newest first.

const COLUMNS = `l.id, to_char(l.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "occurredAt",
           l.actor_kind as "actorKind", l.operator_id as "operatorId", l.actor, l.action,
           l.organization_id as "organizationId", o.name as "organizationName",
           l.channel_oa_id as "accountId", a.name as "accountName",
           l.object_kind as "objectKind", l.object_id as "objectId", l.changes, l.request_id as "requestId"`

/** The names of today. They are read for the rows of one page. */
const NAMES = `left join lateral (select name from organization where id = l.organization_id offset 0) o on true
      left join lateral (select name from official_account where id = l.channel_oa_id offset 0) a on true`

/** $4 action text, or its beginning; $5 and $6 from and to timestamptz; null: any */
const selectActivity = statement('list-activity')`
    select ${COLUMNS}
      from (select * from activity
             where ($1::bigint[] is null or organization_id = any ($1)) and id < $2
               and ($4::text is null or action like $4 || '%')
               and ($5::timestamptz is null or occurred_at >= $5) and ($6::timestamptz is null or occurred_at < $6)
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

/** $4 to $6 as above; $7 operator id bigint */
const selectActivityOfOperator = statement('list-activity-of-operator')`
    select ${COLUMNS}
      from (select * from activity
             where operator_id = $7 and ($1::bigint[] is null or organization_id = any ($1)) and id < $2
               and ($4::text is null or action like $4 || '%')
               and ($5::timestamptz is null or occurred_at >= $5) and ($6::timestamptz is null or occurred_at < $6)
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

/** $4 to $6 as above; $7 account id bigint; $8 operator id bigint, null: any */
const selectActivityOfAccount = statement('list-activity-of-account')`
    select ${COLUMNS}
      from (select * from activity
             where channel_oa_id = $7 and ($8::bigint is null or operator_id = $8)
               and ($1::bigint[] is null or organization_id = any ($1)) and id < $2
               and ($4::text is null or action like $4 || '%')
               and ($5::timestamptz is null or occurred_at >= $5) and ($6::timestamptz is null or occurred_at < $6)
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

/** $4 object kind text; $5 object id text; $6 account id bigint, null: any. The ids of members are only unique in an account. */
const selectActivityOfObject = statement('list-activity-of-object')`
    select ${COLUMNS}
      from (select * from activity
             where object_kind = $4 and object_id = $5 and ($6::bigint is null or channel_oa_id = $6)
               and ($1::bigint[] is null or organization_id = any ($1)) and id < $2
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

/** $4 request id text */
const selectActivityOfRequest = statement('list-activity-of-request')`
    select ${COLUMNS}
      from (select * from activity
             where request_id = $4 and ($1::bigint[] is null or organization_id = any ($1)) and id < $2
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

export interface ActivityPage {
  beforeId: bigint
  limit: number
}

export interface ActivityFilter {
  operatorId: bigint | null
  accountId: AccountId | null
  /** an action or its beginning, such as `endpoint.` */
  action: string | null
  /** ISO 8601 with an offset */
  from: string | null
  to: string | null
}

export const ALL_ACTIVITY: ActivityFilter = {
  operatorId: null,
  accountId: null,
  action: null,
  from: null,
  to: null,
}

/** Newest first. */
export async function listActivity(
  database: Queryable,
  organizationIds: OrganizationIds,
  filter: ActivityFilter,
  { beforeId, limit }: ActivityPage,
): Promise<Activity[]> {
  const { operatorId, accountId, from, to } = filter
  const action = filter.action?.replaceAll(/[\\%_]/g, '\\$&') ?? null
  const values = [organizationIds, beforeId, limit, action, from, to]
  if (accountId !== null) return database.query(selectActivityOfAccount, [...values, accountId, operatorId])
  if (operatorId !== null) return database.query(selectActivityOfOperator, [...values, operatorId])
  return database.query(selectActivity, values)
}

/** Rows read at a time by an export. */
const EXPORT_PAGE = 1_000

/** All rows of a filter, newest first, page by page. */
export async function* exportActivity(
  database: Queryable,
  organizationIds: OrganizationIds,
  filter: ActivityFilter,
): AsyncGenerator<Activity> {
  for (let beforeId = INT64_MAX; ; ) {
    const page = await listActivity(database, organizationIds, filter, { beforeId, limit: EXPORT_PAGE })
    yield* page
    const last = page.at(-1)
    if (last === undefined || page.length < EXPORT_PAGE) return
    beforeId = last.id
  }
}

/** What was done with one object, newest first. @param accountId required for a member, whose id is unique in its account */
export function listActivityOf(
  database: Queryable,
  organizationIds: OrganizationIds,
  { kind, id, accountId }: { kind: ObjectKind; id: bigint; accountId: AccountId | null },
  { beforeId, limit }: ActivityPage,
): Promise<Activity[]> {
  const values = [organizationIds, beforeId, limit, kind, String(id), accountId]
  return database.query(selectActivityOfObject, values)
}

/** What one request of the console changed, newest first. */
export function listActivityOfRequest(
  database: Queryable,
  organizationIds: OrganizationIds,
  requestId: string,
  limit: number,
): Promise<Activity[]> {
  return database.query(selectActivityOfRequest, [organizationIds, INT64_MAX, limit, requestId])
}
