/** Adds, pauses, rotates and removes endpoints. Other programs may write the same table directly. */
import { randomBytes } from 'node:crypto'
import type { AccountId } from '../accounts/account.ts'
import { FatalError } from '../errors.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { insertWithFreeId } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { isOwnUrl, RefusedUrl, readEndpointUrl } from './address.ts'
import { MEMBER_EVENTS, SECRET_PREFIX } from './messages.ts'

const SECRET_BYTES = 32

/** Deliveries changed in one statement, so that senders do not wait long for their rows. */
const ROWS_PER_STATEMENT = 5_000

export type EndpointFormat = 'line' | 'members'

export interface NewEndpoint {
  accountId: AccountId
  url: string
  name: string
  format: EndpointFormat
  /** null: all */
  events: string[] | null
  replies: boolean
  allowPrivateNetwork: boolean
}

export interface AddedEndpoint {
  id: bigint
  /** null for `line`: deliveries are signed with the channel secret */
  secret: string | null
}

/**
 * $1 account id bigint, $2 name text, $3 url text, $4 format text, $5 events text[] or null, $6 replies boolean,
 * $7 allow_private_network boolean, $8 secret text or null
 */
const insertEndpoint = statement('insert-endpoint')`
    insert into endpoint (channel_oa_id, name, url, format, events, replies, allow_private_network, secret)
    select id, $2, $3, $4, $5, $6, $7, $8 from official_account where id = $1
    returning id`

/** $1 account id bigint */
const selectReplier = statement('select-reply-endpoint')`
    select id, name from endpoint where channel_oa_id = $1 and replies and format = 'line'`

/**
 * Returns null if the account does not exist. Throws a FatalError that says why the endpoint is refused.
 * @param own the base URLs of this service, where an endpoint would be a loop
 */
export async function addEndpoint(
  database: Queryable,
  endpoint: NewEndpoint,
  own: URL[],
): Promise<AddedEndpoint | null> {
  const { accountId, name, format, events, replies, allowPrivateNetwork } = endpoint
  const url = checkUrl(endpoint, own)
  checkEvents(endpoint)
  const secret = format === 'line' ? null : newSecret()
  const values = [accountId, name, url.href, format, events, replies, allowPrivateNetwork, secret]
  try {
    const [added] = await insertWithFreeId<{ id: bigint }>(database, 'endpoint', insertEndpoint, values)
    return added === undefined ? null : { id: added.id, secret }
  } catch (error) {
    if (violatedConstraint(error) !== 'endpoint_replies') throw error
    const [first] = await database.query<{ id: bigint; name: string }>(selectReplier, [accountId])
    throw new FatalError(
      `endpoint ${first?.id} (${first?.name || 'no name'}) receives the reply tokens of account ${accountId}, and a token can be used only once. Remove that endpoint, or add this one without replies.`,
    )
  }
}

function checkUrl({ url: text, allowPrivateNetwork }: NewEndpoint, own: URL[]): URL {
  try {
    const url = readEndpointUrl(text, allowPrivateNetwork)
    if (!isOwnUrl(url, own)) return url
  } catch (error) {
    if (!(error instanceof RefusedUrl)) throw error
    const hint = allowPrivateNetwork ? '' : ' For a receiver in your own network, allow the private network.'
    throw new FatalError(`the endpoint is refused: ${error.message}.${hint}`)
  }
  throw new FatalError(`the endpoint is refused: ${text} is this service itself, so deliveries would loop.`)
}

function checkEvents({ format, events, replies }: NewEndpoint): void {
  if (events?.length === 0)
    throw new FatalError('the list of events is empty. Omit it to receive all events.')
  if (format === 'line') return
  if (replies) throw new FatalError('only endpoints of the format line can receive reply tokens.')
  const unknown = events?.filter((event) => !MEMBER_EVENTS.includes(event)) ?? []
  if (unknown.length > 0) {
    throw new FatalError(
      `the format members has no event ${unknown.join(', ')}. Its events are ${MEMBER_EVENTS.join(', ')}.`,
    )
  }
}

/** Returns a secret in the format of Standard Webhooks. */
const newSecret = () => `${SECRET_PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`

/** $1 endpoint id bigint */
const pauseById = statement('pause-endpoint-by-id')`
    update endpoint set status = 'paused' where id = $1 returning id`

/** Deliveries are kept. Returns false if the endpoint does not exist. */
export async function pauseEndpoint(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(pauseById, [id])).length > 0
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
         and endpoint_id = $1 and failed_at is null and first_attempt_at < $2 and leased_until <= now()
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

/** Resumes an endpoint, and makes its backlog due. Returns false if the endpoint does not exist. */
export async function resumeEndpoint(database: Queryable, id: bigint): Promise<boolean> {
  let rest = await beginResumption(database, id)
  if (rest === null) return false
  while (rest !== null) rest = await continueResumption(database, id, rest)
  return true
}

/** Resumes an endpoint. `continueResumption` makes its backlog due. Returns null if the endpoint does not exist. */
export async function beginResumption(database: Queryable, id: bigint): Promise<Resumption | null> {
  const [resumed] = await database.query<{ resumedAt: string }>(resumeById, [id])
  return resumed === undefined ? null : { resumedAt: resumed.resumedAt, lastId: 0n, count: 0 }
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

/** $1 endpoint id bigint. A trigger deletes its deliveries. */
const deleteEndpoint = statement('delete-endpoint')`delete from endpoint where id = $1 returning id`

/** Deletes the endpoint with its unsent deliveries. Returns false if the endpoint does not exist. */
export async function removeEndpoint(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(deleteEndpoint, [id])).length > 0
}

/** $1 endpoint id bigint */
const selectSecretState = statement('select-endpoint-secret-state')`
    select format, previous_secret is not null as "isRotating" from endpoint where id = $1`

/** $1 endpoint id bigint, $2 secret text. If two rotations are concurrent, one changes nothing. */
const replaceSecret = statement('replace-endpoint-secret')`
    update endpoint set previous_secret = secret, secret = $2
     where id = $1 and format = 'members' and previous_secret is null
    returning id`

/**
 * Messages have the signatures of both secrets until finishRotation. Returns the new secret, or null if the endpoint does not exist.
 * Throws a FatalError if the endpoint has no secret or is already rotating.
 */
export async function rotateSecret(database: Queryable, id: bigint): Promise<string | null> {
  const secret = newSecret()
  const rotated = await database.query(replaceSecret, [id, secret])
  if (rotated.length > 0) return secret
  const [state] = await database.query<{ format: EndpointFormat; isRotating: boolean }>(selectSecretState, [
    id,
  ])
  if (state === undefined) return null
  throw new FatalError(
    state.format === 'line'
      ? `endpoint ${id} has the format line, which is signed with the channel secret. Change that with "oa-audience accounts update".`
      : `endpoint ${id} is still rotating, so its receiver may use the previous secret. Run "oa-audience endpoints rotate ${id} --finish" first.`,
  )
}

/** $1 endpoint id bigint */
const clearPreviousSecret = statement('clear-previous-endpoint-secret')`
    update endpoint set previous_secret = null where id = $1 returning id`

/** Deletes the previous secret. Returns false if the endpoint does not exist. */
export async function finishRotation(database: Queryable, id: bigint): Promise<boolean> {
  return (await database.query(clearPreviousSecret, [id])).length > 0
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

/** Makes all permanently failed deliveries of an endpoint due. Returns their number. */
export async function retryFailedDeliveries(database: Queryable, id: bigint): Promise<number> {
  let retried = 0
  for (;;) {
    const batch = await retryFailedBatch(database, id)
    retried += batch.retried
    if (batch.isLast) return retried
  }
}

/** Makes the next batch of permanently failed deliveries due. */
export async function retryFailedBatch(
  database: Queryable,
  id: bigint,
): Promise<{ retried: number; isLast: boolean }> {
  const [row] = await database.query<{ count: number }>(retryFailed, [id, ROWS_PER_STATEMENT])
  const retried = row?.count ?? 0
  return { retried, isLast: retried < ROWS_PER_STATEMENT }
}
