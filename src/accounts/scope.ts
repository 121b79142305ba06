/**
 * Authenticates the API client of a protected route by three headers, and finds the scope of its key. Every request queries the
 * database, so a revoked or expired client or key is refused on its next request.
 */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
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
    /** Null on routes without the guard. */
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
 * Returns the client if it is active and has not expired, with its key if the same holds for the key. The previous secret is valid until
 * the rotation is finished.
 * A use is due for recording once an hour, and never while the database is read-only.
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

/** Call it once for the whole server. */
export function decorateWithCaller(app: FastifyInstance): void {
  app.decorateRequest('caller', null)
}

/**
 * The guard. Throws `missing_credentials` or `invalid_client` (401). Without a database, or if the query fails, it throws `internal`
 * (500), because a 401 would mean that the credentials are wrong.
 */
export function requireApiClient(database: Database, now: () => number): onRequestAsyncHookHandler {
  const noteUse = recordUses(database, now)
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

/**
 * Returns null if the key is not active, has expired, or belongs to another client. Each route has its own response for that and
 * sends it before any other check of the request. Throws `caller_unknown` (401) without the guard.
 */
export function scopeOf({ caller }: FastifyRequest): Scope | null {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.scope
}

/** The client of the request. Throws `caller_unknown` (401) without the guard. */
export function clientOf({ caller }: FastifyRequest): bigint {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.apiClientId
}

/**
 * Queries the client and key of the request again, because a stream lasts longer than the guard's check. Throws `invalid_client` (401)
 * unless they are still valid and have the same scope.
 */
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

// Records when clients and keys were last used. Requests do not wait for it. The guard's query reports whether a time is older than an
// hour. One statement at a time writes all due times, so concurrent requests with due times cause only a few statements.

/** After a failed write, such as on a full disk, requests do not cause another one for this long. */
const PAUSE_AFTER_FAILURE_MS = 60_000

/**
 * Each row is written by the first of several instances: the others skip it while it is locked, and then find that it is not due. No
 * index contains the column, so an update changes no index.
 *
 * $1 client ids bigint[], $2 key ids bigint[]
 */
const recordUse = statement('record-use-of-credentials')`
    with due_client as (
      select id from api_client where id = any ($1) and ${isUseDue('last_used_at')} for no key update skip locked
    ), due_key as (
      select id from api_key where id = any ($2) and ${isUseDue('last_used_at')} for no key update skip locked
    ), used_client as (
      update api_client c set last_used_at = now() from due_client due where c.id = due.id
    )
    update api_key k set last_used_at = now() from due_key due where k.id = due.id`

type NoteUse = (clientId: bigint, keyId: bigint | null) => void

/** The returned function never throws, and returns before the use is written. */
function recordUses(database: Database, now: () => number): NoteUse {
  const clientIds = new Set<bigint>()
  const keyIds = new Set<bigint>()
  let isWriting = false
  let pausedUntilMs = Number.NEGATIVE_INFINITY
  const forget = () => {
    clientIds.clear()
    keyIds.clear()
  }
  const write = async () => {
    isWriting = true
    try {
      while (clientIds.size > 0) {
        const values = [[...clientIds], [...keyIds]]
        forget()
        await database.query(recordUse, values)
      }
    } catch {
      forget()
      pausedUntilMs = now() + PAUSE_AFTER_FAILURE_MS
    } finally {
      isWriting = false
    }
  }
  return (clientId, keyId) => {
    if (now() < pausedUntilMs) return
    clientIds.add(clientId)
    if (keyId !== null) keyIds.add(keyId)
    if (!isWriting) void write()
  }
}
