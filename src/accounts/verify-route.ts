/** POST /api/line-oa/verify: verifies the scope's account with the platform. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import { findScope } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import type { VerificationOutcome } from '../http/metrics.ts'
import { checker } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import { findAccountInOrganization } from './account.ts'
import { ClaimsSchema } from './verification.ts'
import { type Verifier, verifyAccount } from './verify.ts'

export interface VerifyParts extends Omit<Verifier, 'database'> {
  database: Database | null
  /** of the messaging platform: `line` */
  channelName: string
  /** called with the outcome, for the metrics */
  onOutcome: (outcome: VerificationOutcome) => void
}

const checkClaims = checker(ClaimsSchema)

export function verifyRoute(
  app: FastifyInstance,
  parts: VerifyParts,
  guard: onRequestAsyncHookHandler,
): void {
  const { database, channelName, onOutcome, ...verifier } = parts
  app.post(`/api/${channelName}-oa/verify`, { onRequest: guard }, async (request) => {
    const scope = await findScope(database, request.caller)
    if (scope === null || database === null) throw new AppError('no_account_in_scope')
    const account = await findAccountInOrganization(database, scope.accountId, scope.organizationId)
    if (account === null) throw new AppError('no_account_in_scope')
    const body = bodyBytes(request)
    const claims = body.length === 0 ? {} : checkClaims(parseUtf8Json(body))
    try {
      const verification = await verifyAccount({ ...verifier, database }, account, claims)
      onOutcome(verification.verified ? 'verified' : 'refused')
      return verification
    } catch (error) {
      if (error instanceof AppError && error.code === 'platform_unavailable') onOutcome('unavailable')
      throw error
    }
  })
}
