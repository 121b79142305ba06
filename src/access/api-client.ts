/**
 * Middleware stage of the protected routes: who calls. Three headers, no token, no session; a revoked client
 * is refused on its next request, because every request asks the database.
 */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'

export interface Caller {
  apiClientId: bigint
  /** the raw x-api-key header; it proves nothing yet, see scope.ts */
  apiKey: string
}

declare module 'fastify' {
  interface FastifyRequest {
    /** null on routes without the guard */
    caller: Caller | null
  }
}

const selectActiveClient = {
  name: 'active-api-client',
  text: `select id from api_client where client_id = $1 and client_secret = $2 and status = 'active'`,
}

/** Makes room for the caller in the request. To be called once, for the whole server. */
export function decorateWithCaller(app: FastifyInstance): void {
  app.decorateRequest('caller', null)
}

/**
 * The guard. Throws `missing_credentials` or `invalid_client` (401); without a database, or when the database
 * fails, 500: never let through, and never a 401 that would tell a client to throw its credentials away.
 */
export function requireApiClient(database: Database): onRequestAsyncHookHandler {
  return async (request) => {
    const clientId = header(request, 'x-client-id')
    const clientSecret = header(request, 'x-client-secret')
    const apiKey = header(request, 'x-api-key')
    if (!clientId || !clientSecret || !apiKey) throw new AppError('missing_credentials')
    const client = await findClient(database, clientId, clientSecret)
    if (client === undefined) throw new AppError('invalid_client')
    request.caller = { apiClientId: client.id, apiKey }
  }
}

async function findClient(database: Database, clientId: string, clientSecret: string) {
  try {
    const [client] = await database.lookup<{ id: bigint }>(selectActiveClient, [clientId, clientSecret])
    return client
  } catch (error) {
    throw new AppError('internal', { cause: error })
  }
}

/** Node hands header bytes over as Latin-1; what clients mean by anything beyond ASCII is UTF-8. */
function header(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name]
  return typeof value === 'string' ? Buffer.from(value, 'latin1').toString('utf8') : undefined
}
