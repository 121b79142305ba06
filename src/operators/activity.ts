/** The log of who changed what; list-activity.ts reads it. A row is written in the transaction of its change, and never contains a secret or personal text. */
import { type AccountId, type OrganizationId, toJson } from '../ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { Actor } from './actor.ts'

/**
 * SQL writes `account.suspended` and `account.resumed` (record_suspension), `endpoint.gone` and `account.deliveries_taken`. Rows of 0.3.0
 * have `client.updated` and `key.updated`.
 */
export const ACTIONS = [
  'organization.added',
  'organization.updated',
  'organization.removed',
  'account.added',
  'account.updated',
  'account.verified',
  'account.webhook_set',
  'account.muted',
  'account.unmuted',
  'account.followers_imported',
  'account.suspended',
  'account.resumed',
  'account.deliveries_taken',
  'account.removed',
  'endpoint.added',
  'endpoint.updated',
  'endpoint.paused',
  'endpoint.resumed',
  'endpoint.gone',
  'endpoint.tested',
  'endpoint.rotated',
  'endpoint.rotation_finished',
  'endpoint.rotation_discarded',
  'endpoint.retried',
  'endpoint.replayed',
  'endpoint.resent',
  'endpoint.removed',
  'segment.added',
  'segment.updated',
  'segment.synced',
  'segment.removed',
  'client.added',
  'client.updated',
  'client.rotated',
  'client.rotation_finished',
  'client.rotation_discarded',
  'client.revoked',
  'client.removed',
  'key.added',
  'key.updated',
  'key.revoked',
  'member.updated',
  'member.erased',
  'members.erased_again',
  'member.exported',
  'members.imported',
  'members.exported',
  'members.tagged',
  'events.retried',
  'events.set_aside',
  'events.exported',
  'operator.added',
  'operator.updated',
  'operator.disabled',
  'operator.enabled',
  'operator.invited',
  'operator.joined',
  'notifications.added',
  'notifications.updated',
  'notifications.paused',
  'notifications.resumed',
  'notifications.removed',
  'notifications.tested',
  'job.started',
  'job.cancelled',
  'job.secrets_shown',
  'database.restored',
  'secrets.rotated',
  'assistant.called',
  'assistant.refused',
] as const
export type Action = (typeof ACTIONS)[number]

export type ObjectKind =
  | 'organization'
  | 'account'
  | 'endpoint'
  | 'segment'
  | 'client'
  | 'key'
  | 'member'
  | 'event'
  | 'operator'
  | 'notification_channel'
  | 'job'
  | 'database'
  | 'secrets'
  | 'assistant'

/** By field: [before, after], `replaced` for a secret, or one value for a fact such as a number of members */
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
    kind,
    operatorId,
    name,
    action,
    organizationId,
    accountId,
    object.kind,
    objectId,
    toJson(changes),
    requestId,
  ])
}

/** Records what concerns an account as a whole. Call it in the transaction of the change. */
export function recordAccount(
  transaction: Queryable,
  actor: Actor,
  action: Action,
  { id, organizationId }: { id: AccountId; organizationId: OrganizationId },
  changes: Changes,
): Promise<void> {
  const object = { kind: 'account', id } as const
  return recordActivity(transaction, actor, { action, object, organizationId, accountId: id, changes })
}

/** The fields whose values differ, as [before, after]. Fields that `after` does not have are unchanged. `before` of an addition is {}. */
export function changesBetween<T extends object>(before: T, after: Partial<T>): Changes {
  const changes: Changes = {}
  for (const [name, value] of Object.entries(after)) {
    const earlier = before[name as keyof T] ?? null
    if (toJson({ value }) !== toJson({ value: earlier })) changes[name] = [earlier, value]
  }
  return changes
}
