/**
 * Authenticates the API client of a protected route by three headers, and finds the scope of its key. Every request queries the
 * database, so a revoked or expired client or key is refused on its next request.
 */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import { LRUCache } from 'lru-cache'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { type Row, statement } from '../postgres/statement.ts'
import type { AccountId, OrganizationId } from './account.ts'

/** The official account and organization that a request may read and change. */
export interface Scope {
  /** Id of the API key. Null: an operator or the command line. */
  keyId: bigint | null
  /** Name of the operator or command, for the edits of members. Absent: a client. */
  actorName?: string
  accountId: AccountId
  organizationId: OrganizationId
}

interface Caller {
  apiClientId: bigint
  /** Null: the key is not active, has expired, or belongs to another client. */
  scope: Scope | null
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: (Caller & { findAgain: () => Promise<Caller | null> }) | null
  }
}

interface CallerRow extends Row {
  client_id: bigint
  key_id: bigint | null
  channel_oa_id: bigint
  organization_id: bigint
  is_use_due: boolean
}

/** Every request evaluates it, so it is one comparison. A future time of another program stays until an hour after it. */
const isUseDue = (lastUsedAt: string) => `(${lastUsedAt} > now() - interval '1 hour') is not true`

/**
 * The client without a key if the key is not active or has expired. The previous secret is valid until the rotation is finished. A use is
 * due for recording once an hour, and never while the database is read-only.
 *
 * $1 client_id text, $2 client_secret text, $3 key text
 */
const selectActiveCaller = statement('active-caller')`
    select c.id as client_id, k.id as key_id, k.channel_oa_id, k.organization_id,
           (${isUseDue('c.last_used_at')} or k.id is not null and ${isUseDue('k.last_used_at')})
             and current_setting('transaction_read_only') = 'off' as is_use_due
      from api_client c
      left join api_key k on k.api_client_id = c.id and k.key = $3 and k.status = 'active'
                         and (k.expires_at is null or k.expires_at > now())
     where c.client_id = $1 and (c.client_secret = $2 or c.previous_client_secret = $2) and c.status = 'active'
       and (c.expires_at is null or c.expires_at > now())`

export function decorateWithCaller(app: FastifyInstance): void {
  app.decorateRequest('caller', null)
}

/**
 * The guard. Throws `missing_credentials` or `invalid_client` (401). Without a database, or if the query fails, it throws `internal`
 * (500), because a 401 would mean that the credentials are wrong.
 */
export function requireApiClient(database: Database): onRequestAsyncHookHandler {
  const noteUse = recordUses(database)
  return async (request) => {
    const clientId = header(request, 'x-client-id')
    const clientSecret = header(request, 'x-client-secret')
    const apiKey = header(request, 'x-api-key')
    if (!clientId || !clientSecret || !apiKey) throw new AppError('missing_credentials')
    const findAgain = () => findCaller(database, noteUse, clientId, clientSecret, apiKey)
    const caller = await findAgain()
    if (caller === null) throw new AppError('invalid_client')
    request.caller = { ...caller, findAgain }
  }
}

/** Each route has its own response to null, and sends it before any other check. Throws `caller_unknown` (401) without the guard. */
export function scopeOf({ caller }: FastifyRequest): Scope | null {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.scope
}

export function clientOf({ caller }: FastifyRequest): bigint {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.apiClientId
}

/** A stream lasts longer than the guard's check. Throws `invalid_client` (401) unless client and key are still valid, with the same scope. */
export async function requireScopeAgain(
  { caller }: FastifyRequest,
  { keyId, accountId, organizationId }: Scope,
): Promise<void> {
  const now = (await caller?.findAgain())?.scope
  const isSame = now?.keyId === keyId && now.accountId === accountId && now.organizationId === organizationId
  if (!isSame) throw new AppError('invalid_client')
}

async function findCaller(
  database: Database,
  noteUse: NoteUse,
  clientId: string,
  clientSecret: string,
  apiKey: string,
): Promise<Caller | null> {
  try {
    const [row] = await database.lookup<CallerRow>('caller', selectActiveCaller, [
      clientId,
      clientSecret,
      apiKey,
    ])
    if (row === undefined) return null
    const { client_id: apiClientId, key_id: keyId, channel_oa_id: accountId, organization_id } = row
    if (row.is_use_due) noteUse(apiClientId, keyId)
    const scope = keyId === null ? null : { keyId, accountId, organizationId: organization_id }
    return { apiClientId, scope }
  } catch (error) {
    throw new AppError('internal', { cause: error })
  }
}

/** Node decodes header bytes as Latin-1, but clients send UTF-8. A blank header counts as missing. */
function header(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name]
  if (typeof value !== 'string') return undefined
  const text = Buffer.from(value, 'latin1').toString('utf8')
  return text.trim() === '' ? undefined : text
}

/**
 * Each row is written by the first of several instances: the others skip it while it is locked, and then find that it is not due. No
 * index contains the column, so an update changes no index.
 *
 * $1 client id bigint, $2 key id bigint or null
 */
const recordUse = statement('record-use-of-credentials')`
    with due_client as (
      select id from api_client where id = $1 and ${isUseDue('last_used_at')} for no key update skip locked
    ), due_key as (
      select id from api_key where id = $2 and ${isUseDue('last_used_at')} for no key update skip locked
    ), used_client as (
      update api_client c set last_used_at = now() from due_client due where c.id = due.id
    )
    update api_key k set last_used_at = now() from due_key due where k.id = due.id`

const ATTEMPTS_MAX = 10_000
/** An attempt that failed, such as on a full disk, or that found the row locked, is repeated after this time. */
const ATTEMPT_INTERVAL_MS = 60_000

type NoteUse = (clientId: bigint, keyId: bigint | null) => void

function recordUses(database: Database): NoteUse {
  const attempted = new LRUCache<string, true>({ max: ATTEMPTS_MAX, ttl: ATTEMPT_INTERVAL_MS })
  return (clientId, keyId) => {
    const credentials = `${clientId} ${keyId}`
    if (attempted.has(credentials)) return
    attempted.set(credentials, true)
    // Requests neither wait for it nor fail with it.
    database.query(recordUse, [clientId, keyId]).catch(() => undefined)
  }
}
