/** Changes when API clients and keys expire, and rotates the secrets of clients without an outage. */
import { newClientSecret } from '../accounts/provisioning.ts'
import { AppError, requireVisible } from '../errors.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { type Action, type Changes, changesBetween, recordActivity } from './activity.ts'
import type { Actor } from './actor.ts'
import { jsonTime } from './clients.ts'
import { findKey, requireClient } from './manage-clients.ts'
import { readFutureExpiry } from './read-time.ts'

type Expiries = { before: string | null; after: string | null }

/** $1 client id bigint, $2 when it expires timestamptz or null */
const setClientExpiry = statement('set-expiry-of-client')`
    with before as (select id, expires_at from api_client where id = $1 for no key update)
    update api_client c set expires_at = $2 from before where c.id = before.id
    returning ${jsonTime('before.expires_at')} as before, ${jsonTime('c.expires_at')} as after`

/** $1 key id bigint, $2 when it expires timestamptz or null */
const setKeyExpiry = statement('set-expiry-of-key')`
    with before as (select id, expires_at from api_key where id = $1 for no key update)
    update api_key k set expires_at = $2 from before where k.id = before.id
    returning ${jsonTime('before.expires_at')} as before, ${jsonTime('k.expires_at')} as after`

const changeOf = (rows: Expiries[]): Changes =>
  changesBetween({ expiresAt: rows[0]?.before }, { expiresAt: rows[0]?.after })

/**
 * Takes effect on the client's next request. Throws `invalid_input` for a time in the past, and as requireClient does.
 * @param expiresAt a time or a date; null: never
 */
export function updateClient(
  database: Transactions,
  actor: Actor,
  id: bigint,
  expiresAt: string | null,
): Promise<void> {
  const expiry = readFutureExpiry(expiresAt)
  return changeClient(database, actor, id, 'client.updated', async (transaction) => ({
    result: undefined,
    changes: changeOf(await transaction.query<Expiries>(setClientExpiry, [id, expiry])),
  }))
}

/**
 * Takes effect on the next request with the key. Throws NotVisible, and `invalid_input` for a time in the past.
 * @param expiresAt a time or a date; null: never
 */
export function updateKey(
  database: Transactions,
  actor: Actor,
  id: bigint,
  expiresAt: string | null,
): Promise<void> {
  const expiry = readFutureExpiry(expiresAt)
  return database.transaction(async (transaction) => {
    const { organizationId, accountId, client } = await findKey(transaction, actor, id)
    const changes = changeOf(await transaction.query<Expiries>(setKeyExpiry, [id, expiry]))
    await recordActivity(transaction, actor, {
      action: 'key.updated',
      object: { kind: 'key', id },
      ...{ organizationId, accountId },
      changes: { client, ...changes },
    })
  })
}

/** $1 client id bigint. If two rotations are concurrent, one waits and then finds the previous secret of the other. */
const lockSecrets = statement('lock-client-secrets')`
    select status, previous_client_secret is not null as "isRotating" from api_client where id = $1 for no key update`

/** $1 client id bigint, $2 secret text */
const replaceSecret = statement('replace-client-secret')`
    update api_client set previous_client_secret = client_secret, client_secret = $2 where id = $1`

/**
 * Both secrets are valid until endClientRotation. Returns the new secret. Throws `invalid_input` if the client is rotating already or not active, and as requireClient does.
 */
export function rotateClient(database: Transactions, actor: Actor, id: bigint): Promise<string> {
  return changeClient(database, actor, id, 'client.rotated', async (transaction) => {
    type Locked = { status: string; isRotating: boolean }
    const [locked] = await transaction.query<Locked>(lockSecrets, [id])
    const state = requireVisible(locked, 'client', id)
    if (state.isRotating)
      refuse(
        `client ${id} already has a previous secret, which its programs may still use. Finish that rotation first ("oa-audience clients rotate ${id} --finish"), or discard its new secret (--discard).`,
      )
    if (state.status !== 'active')
      refuse(`client ${id} is not active, so none of its secrets is accepted. Add another client instead.`)
    const secret = newClientSecret()
    await transaction.query(replaceSecret, [id, secret])
    return { result: secret, changes: { clientSecret: 'replaced' } }
  })
}

function refuse(message: string): never {
  throw new AppError('invalid_input', { message })
}

/** $1 client id bigint */
const keepNewSecret = statement('clear-previous-client-secret')`
    update api_client set previous_client_secret = null
     where id = $1 and previous_client_secret is not null returning id`

/** $1 client id bigint */
const keepPreviousSecret = statement('restore-previous-client-secret')`
    update api_client set client_secret = previous_client_secret, previous_client_secret = null
     where id = $1 and previous_client_secret is not null returning id`

const ENDINGS = {
  new: { action: 'client.rotation_finished', statement: keepNewSecret },
  previous: { action: 'client.rotation_discarded', statement: keepPreviousSecret },
} as const

/**
 * The other secret is refused from the next request on. Throws `invalid_input` if the client is not rotating, and as requireClient does.
 */
export function endClientRotation(
  database: Transactions,
  actor: Actor,
  id: bigint,
  kept: keyof typeof ENDINGS,
): Promise<void> {
  return changeClient(database, actor, id, ENDINGS[kept].action, async (transaction) => {
    const ended = await transaction.query(ENDINGS[kept].statement, [id])
    if (ended.length === 0) refuse(`client ${id} is not rotating: it has one secret. Nothing was changed.`)
    return { result: undefined }
  })
}

/** Records the change of `work` in its transaction. */
function changeClient<T>(
  database: Transactions,
  actor: Actor,
  id: bigint,
  action: Action,
  work: (transaction: Queryable) => Promise<{ result: T; changes?: Changes }>,
): Promise<T> {
  return database.transaction(async (transaction) => {
    await requireClient(transaction, actor, id)
    const { result, changes = {} } = await work(transaction)
    const object = { kind: 'client' as const, id }
    await recordActivity(transaction, actor, { action, object, organizationId: null, changes })
    return result
  })
}
