/**
 * Authenticates the API client of a protected route by three headers, and finds the scope of its key. Every request queries the
 * database, so a revoked client or key is refused on its next request.
 */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import { LRUCache } from 'lru-cache'
import { AppError } from '../errors.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { Database } from '../postgres/database.ts'
import { statement } from '../postgres/statement.ts'

/** What a request may read and change. */
export interface Scope {
  /** null: an operator or a command */
  keyId: bigint | null
  /** of the operator or command, for the edits of members; absent: a client */
  actorName?: string
  accountId: AccountId
  organizationId: OrganizationId
}

/** Of an operator, a command or the service itself, which have no key. */
export const scopeOfAccount = (
  { id, organizationId }: { id: AccountId; organizationId: OrganizationId },
  actorName?: string,
): Scope => ({
  keyId: null,
  ...(actorName !== undefined && { actorName }),
  accountId: id,
  organizationId,
})

interface Caller {
  apiClientId: bigint
  scope: Scope | null
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: (Caller & { findAgain: () => Promise<Caller | null> }) | null
  }
}

/** keyId is null if the key is not active or belongs to another client. */
type CallerRow = Omit<Scope, 'actorName'> & { apiClientId: bigint; isUseDue: boolean }

/** Every request evaluates it, so it is one comparison. A future time of another program stays until an hour after it. */
const isUseDue = (lastUsedAt: string) => `(${lastUsedAt} > now() - interval '1 hour') is not true`

/**
 * The previous secret is valid until the rotation is finished. A use is recorded once an hour, and never while the database is read-only.
 *
 * $1 client_id text, $2 client_secret text, $3 key text
 */
const selectActiveCaller = statement('active-caller')`
    select c.id as "apiClientId", k.id as "keyId", k.channel_oa_id as "accountId", k.organization_id as "organizationId",
           (${isUseDue('c.last_used_at')} or k.id is not null and ${isUseDue('k.last_used_at')})
             and current_setting('transaction_read_only') = 'off' as "isUseDue"
      from api_client c
      left join api_key k on k.api_client_id = c.id and k.key = $3 and k.status = 'active'
     where c.client_id = $1 and (c.client_secret = $2 or c.previous_client_secret = $2) and c.status = 'active'`

export function decorateWithCaller(app: FastifyInstance): void {
  app.decorateRequest('caller', null)
}

/** The guard. Throws 401, or 500 if the query fails: a 401 would mean that the credentials are wrong. */
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

/** Each route has its own response to null, and sends it before any other check. */
export function scopeOf({ caller }: FastifyRequest): Scope | null {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.scope
}

export function clientOf({ caller }: FastifyRequest): bigint {
  if (caller === null) throw new AppError('caller_unknown')
  return caller.apiClientId
}

/** For streams. Throws `invalid_client` (401) unless client and key are still valid, with the same scope. */
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
    const values = [clientId, clientSecret, apiKey]
    const [row] = await database.callers.query<CallerRow>(selectActiveCaller, values)
    if (row === undefined) return null
    const { apiClientId, isUseDue, ...scope } = row
    if (isUseDue) noteUse(apiClientId, scope.keyId)
    return { apiClientId, scope: scope.keyId === null ? null : scope }
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
 * The first of several instances writes a row: the others skip it while it is locked, and then find that it is not due.
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
