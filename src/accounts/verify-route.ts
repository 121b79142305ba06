/** POST /api/line-oa/verify: verifies the scope's account with the platform. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import { scopeOf } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { checker } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import { findAccountInOrganization } from './account.ts'
import { verifySchema } from './route-schema.ts'
import { ClaimsSchema } from './verification.ts'
import { type Verifier, verifyAccount } from './verify.ts'

export interface VerifyParts extends Verifier {
  database: Database
  /** The messaging platform in the path: `line`. */
  channelName: string
}

const checkClaims = checker(ClaimsSchema)

export function verifyRoute(
  app: FastifyInstance,
  parts: VerifyParts,
  guard: onRequestAsyncHookHandler,
): void {
  const { channelName, ...verifier } = parts
  const { database } = parts
  app.post(`/api/${channelName}-oa/verify`, { schema: verifySchema, onRequest: guard }, async (request) => {
    const scope = scopeOf(request)
    if (scope === null) throw new AppError('no_account_in_scope')
    const account = await findAccountInOrganization(database, scope.accountId, scope.organizationId)
    if (account === null) throw new AppError('no_account_in_scope')
    const body = bodyBytes(request)
    const claims = body.length === 0 ? {} : checkClaims(parseUtf8Json(body))
    return verifyAccount({ ...verifier, database: database.forTenant(scope) }, account, claims)
  })
}
