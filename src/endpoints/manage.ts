/** Pauses, resumes, rotates and removes endpoints. settings.ts adds and changes them. Other programs may write the same table directly. */
import { refuseRequest, requireVisible } from '../errors.ts'
import type { Changes } from '../operators/activity.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { newSecret } from './messages.ts'

/** Deliveries changed in one statement, so that senders do not wait long for their rows. A batch with fewer is the last one. */
export const ROWS_PER_STATEMENT = 5_000
/** Deliveries that become due when an endpoint is resumed, in the transaction: 0.2 s. */
const RENEWED_MAX = 10_000

const updateStatus = statement('update-endpoint-status')`
    update endpoint set status = $2 where id = $1 and status <> $2 returning id`

/** Pauses an endpoint that responded with 410, and records it in the activity log. $1 bigint: endpoint. */
export const pauseGone = statement('pause-gone-endpoint')`
    with paused as (
      update endpoint set status = 'paused' where id = $1 and status = 'active' returning id, channel_oa_id)
    insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id)
    select 'service', 'service', 'endpoint.gone', a.organization_id, a.id, 'endpoint', p.id::text
      from paused p join official_account a on a.id = p.channel_oa_id`

/** Makes deliveries due that were tried before, and restarts their 24 hours of retries. */
const makeDeliveriesDue = statement('make-endpoint-deliveries-due')`
    with tried as (
      select channel_oa_id, id from endpoint_delivery
       where endpoint_id = $1 and failed_at is null and first_attempt_at is not null and is_due(leased_until, interval '30 seconds')
       order by due_at limit $2 for update skip locked
    )
    update endpoint_delivery d set first_attempt_at = null, due_at = least(due_at, now())
      from tried where d.channel_oa_id = tried.channel_oa_id and d.id = tried.id`

/** The backlog gets a new beginning, because the endpoint was repaired, or is another one. */
export async function renewBacklog(database: Queryable, id: bigint): Promise<void> {
  await database.query(makeDeliveriesDue, [id, RENEWED_MAX])
}

/** Returns what has changed, for the activity log, or null if the endpoint had this status. */
export async function setStatus(
  database: Queryable,
  id: bigint,
  status: 'active' | 'paused',
): Promise<Changes | null> {
  const [changed] = await database.query(updateStatus, [id, status])
  if (changed === undefined) return null
  if (status === 'active') await renewBacklog(database, id)
  return { status: [status === 'active' ? 'paused' : 'active', status] }
}

const deleteEndpoint = statement('delete-endpoint')`delete from endpoint where id = $1`

const deleteDeliveries = statement('delete-deliveries-of-endpoint')`
    with deleted as (
      delete from endpoint_delivery d
       using (select * from (select channel_oa_id, id from endpoint_delivery where endpoint_id = $1 and failed_at is null
                              order by due_at limit $2 for update skip locked) pending
               union all
              select * from (select channel_oa_id, id from endpoint_delivery where endpoint_id = $1 and failed_at is not null
                              order by id limit $2 for update skip locked) failed
               limit $2) lost
       where d.channel_oa_id = lost.channel_oa_id and d.id = lost.id
      returning 1
    )
    select count(*)::int as count from deleted`

/**
 * Deletes up to ROWS_PER_STATEMENT deliveries, and the endpoint if there are no more. In one transaction, a million would take 3 s, and
 * other endpoints would wait for 5 s, because a sender waits for the row of the endpoint's last response.
 */
export async function removeEndpointBatch(database: Queryable, id: bigint): Promise<number> {
  await setStatus(database, id, 'paused')
  const [row] = await database.query<{ count: number }>(deleteDeliveries, [id, ROWS_PER_STATEMENT])
  const count = row?.count ?? 0
  if (count < ROWS_PER_STATEMENT) await database.query(deleteEndpoint, [id])
  return count
}

/** If two rotations are concurrent, one waits and then finds the previous secret of the other. */
const lockSecrets = statement('lock-endpoint-secrets')`
    select format, secret, previous_secret as previous from endpoint where id = $1 for no key update`

type LockedSecrets = { format: string; secret: string | null; previous: string | null }

const replaceSecret = statement('replace-endpoint-secret')`
    update endpoint set secret = $2, previous_secret = $3 where id = $1`

/** Messages have the signatures of both secrets until finishRotation. */
export async function rotateSecret(transaction: Queryable, id: bigint): Promise<string> {
  const state = await lockState(transaction, id)
  if (state.format === 'line')
    refuseRequest(
      `endpoint ${id} has the format line, which is signed with the channel secret. Change the secret of the account instead.`,
    )
  if (state.previous !== null)
    refuseRequest(
      `endpoint ${id} is still rotating, so its program may use the previous secret. Finish that rotation first ("oa-audience endpoints rotate ${id} --finish"), or discard its new secret (--discard).`,
    )
  const { secretKeys } = transaction
  const secret = newSecret()
  const previous = secretKeys.decryptOrNull('endpoint.secret', id, state.secret)
  await transaction.query(replaceSecret, [
    id,
    secretKeys.encrypt('endpoint.secret', id, secret),
    secretKeys.encrypt('endpoint.previous_secret', id, previous),
  ])
  return secret
}

export async function finishRotation(transaction: Queryable, id: bigint): Promise<void> {
  const { secret } = await lockRotating(transaction, id)
  await transaction.query(replaceSecret, [id, secret, null])
}

/** The previous secret signs alone again. */
export async function discardRotation(transaction: Queryable, id: bigint): Promise<void> {
  const state = await lockRotating(transaction, id)
  const { secretKeys } = transaction
  // A ciphertext is bound to its column.
  const previous = secretKeys.decryptOrNull('endpoint.previous_secret', id, state.previous)
  if (previous === null)
    refuseRequest(`the previous secret of endpoint ${id} cannot be decrypted. Finish the rotation instead.`)
  await transaction.query(replaceSecret, [id, secretKeys.encrypt('endpoint.secret', id, previous), null])
}

async function lockState(transaction: Queryable, id: bigint): Promise<LockedSecrets> {
  const [locked] = await transaction.query<LockedSecrets>(lockSecrets, [id])
  return requireVisible(locked, 'endpoint', id)
}

async function lockRotating(transaction: Queryable, id: bigint): Promise<LockedSecrets> {
  const state = await lockState(transaction, id)
  if (state.previous === null)
    refuseRequest(`endpoint ${id} is not rotating: it has one secret, or none. Nothing was changed.`)
  return state
}

/** The next attempt counts as a retry, and the 24 hours of retries begin again. */
const retryFailed = statement('retry-failed-deliveries')`
    with due as (
      select channel_oa_id, id from endpoint_delivery
       where endpoint_id = $1 and failed_at is not null
       order by id limit $2 for update skip locked
    ), retried as (
      update endpoint_delivery d
         set failed_at = null, first_attempt_at = null, attempts = 1, due_at = now(), leased_until = '-infinity'
        from due where d.channel_oa_id = due.channel_oa_id and d.id = due.id
      returning 1
    )
    select count(*)::int as count from retried`

export async function retryFailedBatch(database: Queryable, id: bigint): Promise<number> {
  const [row] = await database.query<{ count: number }>(retryFailed, [id, ROWS_PER_STATEMENT])
  return row?.count ?? 0
}
