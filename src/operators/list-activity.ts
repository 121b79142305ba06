/** Reads the log of who changed what: for its page and export, for one object, and for one request. Planner idioms: docs/planner.md. */
import { INT64_MAX } from '../http/path-id.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Action, Changes, ObjectKind } from './activity.ts'
import type { Actor, OrganizationIds } from './actor.ts'

export type Activity = {
  id: bigint
  occurredAt: string
  actorKind: Actor['kind']
  operatorId: bigint | null
  actor: string
  /** the name of the operator, null: none is stored */
  actorName: string | null
  action: Action
  organizationId: OrganizationId | null
  organizationName: string | null
  accountId: AccountId | null
  accountName: string | null
  objectKind: ObjectKind
  objectId: string | null
  /** of a key, that of its client; of a job, its kind; null: it was removed, has no name, or the row is of an export and about a member */
  objectName: string | null
  changes: Changes
  requestId: string | null
}

// Parameters of all lists: $1 organization ids bigint[], null: all; $2 before this id bigint; $3 maximum number of rows int.
// Newest first.

const COLUMNS = `l.id, iso(l.occurred_at) as "occurredAt",
           l.actor_kind as "actorKind", l.operator_id as "operatorId", l.actor, p.name as "actorName", l.action,
           l.organization_id as "organizationId", o.name as "organizationName",
           l.channel_oa_id as "accountId", a.name as "accountName",
           l.object_kind as "objectKind", l.object_id as "objectId", n.name as "objectName", l.changes,
           l.request_id as "requestId"`

/** The names of today. They are read for the rows of one page. The log does not store the name of a member, which is personal text. */
const NAMES = `left join lateral (select name from organization where id = l.organization_id offset 0) o on true
      left join lateral (select name from official_account where id = l.channel_oa_id offset 0) a on true
      left join lateral (select name from operator where id = l.operator_id offset 0) p on true
      left join lateral (
        select case l.object_kind
                 when 'organization' then o.name
                 when 'account' then a.name
                 when 'endpoint' then (select name from endpoint where id = l.object_id::bigint)
                 when 'member' then (select display_name from audience_member
                                      where channel_oa_id = l.channel_oa_id and id = l.object_id::bigint)
                 when 'segment' then (select name from segment where id = l.object_id::bigint)
                 when 'client' then (select coalesce(name, client_id) from api_client where id = l.object_id::bigint)
                 when 'key' then (select coalesce(c.name, c.client_id) from api_client c join api_key k on k.api_client_id = c.id
                                   where k.id = l.object_id::bigint)
                 when 'operator' then (select coalesce(name, email) from operator where id = l.object_id::bigint)
                 when 'job' then (select kind from job where id = l.object_id::bigint)
                 when 'notification_channel' then (select name from notification_channel where id = l.object_id::bigint)
               end as name offset 0) n on true`

/** @param condition of the rows; an index begins with its columns */
const listWhere = (name: string, condition: string) => statement(name)`
    select ${COLUMNS}
      from (select * from activity
             where ${condition} and visible(organization_id, $1) and id < $2
             order by id desc limit $3) l
      ${NAMES}
     order by l.id desc`

/** $4 action text, or its beginning; $5 and $6 from and to timestamptz; $7 kind of actor text; null: any */
const MATCHES = `($4::text is null or action like $4 || '%')
               and ($5::timestamptz is null or occurred_at >= $5) and ($6::timestamptz is null or occurred_at < $6)
               and ($7::text is null or actor_kind = $7)`

const selectActivity = listWhere('list-activity', MATCHES)

/** $8 operator id bigint */
const selectActivityOfOperator = listWhere('list-activity-of-operator', `operator_id = $8 and ${MATCHES}`)

/** $8 account id bigint; $9 operator id bigint, null: any */
const selectActivityOfAccount = listWhere(
  'list-activity-of-account',
  `channel_oa_id = $8 and ($9::bigint is null or operator_id = $9) and ${MATCHES}`,
)

/** $4 object kind text; $5 object id text; $6 account id bigint, null: any. The ids of members are only unique in an account. */
const selectActivityOfObject = listWhere(
  'list-activity-of-object',
  'object_kind = $4 and object_id = $5 and ($6::bigint is null or channel_oa_id = $6)',
)

/** $4 request id text */
const selectActivityOfRequest = listWhere('list-activity-of-request', 'request_id = $4')

interface ActivityPage {
  beforeId: bigint
  limit: number
}

export interface ActivityFilter {
  actorKind: Actor['kind'] | null
  operatorId: bigint | null
  accountId: AccountId | null
  /** an action or its beginning, such as `endpoint.` */
  action: string | null
  from: string | null
  to: string | null
}

export const ALL_ACTIVITY: ActivityFilter = {
  actorKind: null,
  operatorId: null,
  accountId: null,
  action: null,
  from: null,
  to: null,
}

export async function listActivity(
  database: Queryable,
  organizationIds: OrganizationIds,
  filter: ActivityFilter,
  { beforeId, limit }: ActivityPage,
): Promise<Activity[]> {
  const { actorKind, operatorId, accountId, from, to } = filter
  const action = filter.action?.replaceAll(/[\\%_]/g, '\\$&') ?? null
  const values = [organizationIds, beforeId, limit, action, from, to, actorKind]
  if (accountId !== null) return database.query(selectActivityOfAccount, [...values, accountId, operatorId])
  if (operatorId !== null) return database.query(selectActivityOfOperator, [...values, operatorId])
  return database.query(selectActivity, values)
}

const EXPORT_PAGE = 1_000

export async function* exportActivity(
  database: Queryable,
  organizationIds: OrganizationIds,
  filter: ActivityFilter,
): AsyncGenerator<Activity[]> {
  for (let beforeId = INT64_MAX; ; ) {
    const page = await listActivity(database, organizationIds, filter, { beforeId, limit: EXPORT_PAGE })
    yield page.map((row) => (row.objectKind === 'member' ? { ...row, objectName: null } : row))
    const last = page.at(-1)
    if (last === undefined || page.length < EXPORT_PAGE) return
    beforeId = last.id
  }
}

/** @param accountId required for a member, whose id is unique in its account */
export function listActivityOf(
  database: Queryable,
  organizationIds: OrganizationIds,
  { kind, id, accountId }: { kind: ObjectKind; id: bigint; accountId: AccountId | null },
  { beforeId, limit }: ActivityPage,
): Promise<Activity[]> {
  const values = [organizationIds, beforeId, limit, kind, String(id), accountId]
  return database.query(selectActivityOfObject, values)
}

export function listActivityOfRequest(
  database: Queryable,
  organizationIds: OrganizationIds,
  requestId: string,
  limit: number,
): Promise<Activity[]> {
  return database.query(selectActivityOfRequest, [organizationIds, INT64_MAX, limit, requestId])
}
