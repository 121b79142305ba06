/** POST /api/line-oa/verify: verifies the scope's account with the platform. */
import type { FastifyInstance, FastifySchema, onRequestAsyncHookHandler } from 'fastify'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import {
  BODY_FAILURES,
  CLIENT_FAILURES,
  failures,
  jsonBody,
  reference,
  success,
  TAGS,
  THREE_HEADERS,
} from '../http/schema-parts.ts'
import { checker } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import { findAccountInOrganization } from './account.ts'
import { scopeOf } from './scope.ts'
import { ClaimsSchema } from './verification.ts'
import { type Verifier, verifyAccount } from './verify.ts'

const verifySchema: FastifySchema = {
  operationId: 'verifyAccount',
  summary: 'Verify the official account',
  description: `Asks LINE whether the account of the scope is set up correctly, and stores the outcome on the account.
The body is optional. With \`testWebhook\`, LINE also sends a test delivery to the webhook.`,
  tags: [TAGS.account],
  security: THREE_HEADERS,
  body: jsonBody(reference('Claims')),
  'x-body-optional': true,
  response: {
    ...success('Verification', 'The outcome of all checks. A failed check is also a 200.'),
    ...failures({
      ...CLIENT_FAILURES,
      ...BODY_FAILURES,
      400: 'The body is not valid JSON, or a field is invalid. `details` identifies the field.',
      404: 'The API key is not active, or its scope has no official account.',
      503: 'LINE is unavailable, slow or limits requests, or the webhook was tested too often.',
    }),
  },
}

interface VerifyParts extends Verifier {
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
