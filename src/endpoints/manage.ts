/** Pauses, resumes, rotates and removes endpoints. settings.ts adds and changes them. Other programs may write the same table directly. */
import { AppError, requireVisible } from '../errors.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { newSecret } from './messages.ts'

/** Deliveries changed in one statement, so that senders do not wait long for their rows. */
const ROWS_PER_STATEMENT = 5_000

/** $1 endpoint id bigint */
const pauseById = statement('pause-endpoint-by-id')`
    update endpoint set status = 'paused' where id = $1 returning id`

/** Deliveries are kept. Throws NotVisible. */
export async function pauseEndpoint(database: Queryable, id: bigint): Promise<void> {
  const [paused] = await database.query(pauseById, [id])
  requireVisible(paused, 'endpoint', id)
}

/** $1 endpoint id bigint */
const resumeById = statement('resume-endpoint')`
    update endpoint set status = 'active' where id = $1
    returning to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "resumedAt"`

/**
 * Makes deliveries due that failed before the endpoint was resumed, and restarts their 24 hours of retries. Batches are in the order
 * of ids.
 *
 * $1 endpoint id bigint, $2 when it was resumed timestamptz, $3 the last id of the previous batch bigint,
 * $4 maximum number of rows int
 */
const makeDeliveriesDue = statement('make-endpoint-deliveries-due')`
    with tried as (
      select channel_oa_id, id from endpoint_delivery
       where channel_oa_id = (select channel_oa_id from endpoint where id = $1) and id > $3
         and endpoint_id = $1 and failed_at is null and first_attempt_at < $2 and is_due(leased_until, interval '30 seconds')
       order by id limit $4 for update skip locked
    ), made_due as (
      update endpoint_delivery d set first_attempt_at = null, due_at = least(due_at, now())
        from tried where d.channel_oa_id = tried.channel_oa_id and d.id = tried.id
    )
    select max(id) as "lastId", count(*)::int as count from tried`

/** Where resuming an endpoint continues. */
export interface Resumption {
  resumedAt: string
  lastId: bigint
  /** deliveries of the last batch */
  count: number
}

/** Resumes an endpoint. `continueResumption` makes its backlog due. Throws NotVisible. */
export async function beginResumption(database: Queryable, id: bigint): Promise<Resumption> {
  const [resumed] = await database.query<{ resumedAt: string }>(resumeById, [id])
  return { ...requireVisible(resumed, 'endpoint', id), lastId: 0n, count: 0 }
}

/** Makes the next batch of the backlog due. Returns null when nothing is left. */
export async function continueResumption(
  database: Queryable,
  id: bigint,
  { resumedAt, lastId }: Pick<Resumption, 'resumedAt' | 'lastId'>,
): Promise<Resumption | null> {
  const values: unknown[] = [id, resumedAt, lastId, ROWS_PER_STATEMENT]
  const [batch] = await database.query<{ lastId: bigint | null; count: number }>(makeDeliveriesDue, values)
  return batch?.lastId == null ? null : { resumedAt, lastId: batch.lastId, count: batch.count }
}

/** $1 endpoint id bigint. A trigger deletes its deliveries that are left. */
const deleteEndpoint = statement('delete-endpoint')`delete from endpoint where id = $1`

/**
 * Deletes deliveries that are not being settled now.
 *
 * $1 endpoint id bigint, $2 maximum number of rows int
 */
const deleteDeliveries = statement('delete-deliveries-of-endpoint')`
    with pending as (
      select channel_oa_id, id from endpoint_delivery
       where endpoint_id = $1 and failed_at is null
       order by due_at limit $2 for update skip locked
    ), failed as (
      select channel_oa_id, id from endpoint_delivery
       where endpoint_id = $1 and failed_at is not null
       order by id limit $2 for update skip locked
    ), deleted as (
      delete from endpoint_delivery d
       using (select * from pending union all select * from failed limit $2) lost
       where d.channel_oa_id = lost.channel_oa_id and d.id = lost.id
      returning 1
    )
    select count(*)::int as count from deleted`

/**
 * Pauses the endpoint and deletes a batch of its deliveries. The last batch deletes the endpoint. For requests, which may not take as
 * long as the removal of a large backlog. Throws NotVisible.
 */
export async function removeEndpointBatch(
  database: Queryable,
  id: bigint,
): Promise<{ deleted: number; isLast: boolean }> {
  await pauseEndpoint(database, id)
  const [row] = await database.query<{ count: number }>(deleteDeliveries, [id, ROWS_PER_STATEMENT])
  const deleted = row?.count ?? 0
  const isLast = deleted < ROWS_PER_STATEMENT
  if (isLast) await database.query(deleteEndpoint, [id])
  return { deleted, isLast }
}

/** $1 endpoint id bigint. If two rotations are concurrent, one waits and then finds the previous secret of the other. */
const lockSecrets = statement('lock-endpoint-secrets')`
    select format, secret, previous_secret as previous from endpoint where id = $1 for no key update`

type LockedSecrets = { format: string; secret: string | null; previous: string | null }

/** $1 endpoint id bigint, $2 secret text, $3 previous secret text or null */
const replaceSecret = statement('replace-endpoint-secret')`
    update endpoint set secret = $2, previous_secret = $3 where id = $1`

/**
 * Messages have the signatures of both secrets until finishRotation. Returns the new secret. Throws NotVisible,
 * and `invalid_input` if the endpoint has no secret or is already rotating.
 */
export async function rotateSecret(transaction: Queryable, id: bigint): Promise<string> {
  const [locked] = await transaction.query<LockedSecrets>(lockSecrets, [id])
  const state = requireVisible(locked, 'endpoint', id)
  if (state.format === 'line')
    refuse(
      `endpoint ${id} has the format line, which is signed with the channel secret. Change the secret of the account instead.`,
    )
  if (state.previous !== null)
    refuse(
      `endpoint ${id} is still rotating, so its receiver may use the previous secret. Finish that rotation first ("oa-audience endpoints rotate ${id} --finish"), or discard its new secret (--discard).`,
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

/** Deletes the previous secret. Throws NotVisible, and `invalid_input` if the endpoint is not rotating. */
export async function finishRotation(transaction: Queryable, id: bigint): Promise<void> {
  const { secret } = await lockRotating(transaction, id)
  await transaction.query(replaceSecret, [id, secret, null])
}

/** The previous secret signs alone again. Throws as finishRotation does. */
export async function discardRotation(transaction: Queryable, id: bigint): Promise<void> {
  const state = await lockRotating(transaction, id)
  const { secretKeys } = transaction
  // A ciphertext is bound to its column.
  const previous = secretKeys.decryptOrNull('endpoint.previous_secret', id, state.previous)
  if (previous === null)
    refuse(`the previous secret of endpoint ${id} cannot be decrypted. Finish the rotation instead.`)
  await transaction.query(replaceSecret, [id, secretKeys.encrypt('endpoint.secret', id, previous), null])
}

async function lockRotating(transaction: Queryable, id: bigint): Promise<LockedSecrets> {
  const [locked] = await transaction.query<LockedSecrets>(lockSecrets, [id])
  const state = requireVisible(locked, 'endpoint', id)
  if (state.previous === null)
    refuse(`endpoint ${id} is not rotating: it has one secret, or none. Nothing was changed.`)
  return state
}

function refuse(message: string): never {
  throw new AppError('invalid_input', { message })
}

/**
 * Makes failed deliveries due. The next attempt counts as a retry, and the 24 hours of retries begin again.
 *
 * $1 endpoint id bigint, $2 maximum number of rows int
 */
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

/** Makes the next batch of permanently failed deliveries due. */
export async function retryFailedBatch(
  database: Queryable,
  id: bigint,
): Promise<{ retried: number; isLast: boolean }> {
  const [row] = await database.query<{ count: number }>(retryFailed, [id, ROWS_PER_STATEMENT])
  const retried = row?.count ?? 0
  return { retried, isLast: retried < ROWS_PER_STATEMENT }
}
