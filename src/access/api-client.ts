/**
 * Middleware stage of the protected routes: authenticates the API client by its headers. Every request queries the
 * database, so a revoked client is refused on its next request.
 */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'

export interface Caller {
  apiClientId: bigint
  /** the raw x-api-key header, not verified yet: see scope.ts */
  apiKey: string
}

declare module 'fastify' {
  interface FastifyRequest {
    /** null on routes without the guard */
    caller: Caller | null
  }
}

/** $1 client_id text, $2 client_secret text */
const selectActiveClient = {
  name: 'active-api-client',
  text: `select id from api_client where client_id = $1 and client_secret = $2 and status = 'active'`,
}

/** Call it once for the whole server. */
export function decorateWithCaller(app: FastifyInstance): void {
  app.decorateRequest('caller', null)
}

/**
 * The guard. Throws `missing_credentials` or `invalid_client` (401). Without a database, or if the query fails, it throws
 * `internal` (500). A 401 would tell the client that its credentials are wrong.
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
    const [client] = await database.lookup<{ id: bigint }>('caller', selectActiveClient, [
      clientId,
      clientSecret,
    ])
    return client
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
