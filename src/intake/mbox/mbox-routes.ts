/** POST /api/mbox/callback/:oaHash: the support chat's webhook. */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { findAccountByOaHash } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { AdmittingAccounts, repeatWhileStale } from '../admit.ts'
import type { Reception } from '../receive.ts'
import type { SourceParts } from '../source.ts'
import { parseChatCallback } from './mbox-payload.ts'
import { callbackPath, chatCallbackSchema } from './mbox-route-schema.ts'
import { hasValidChatSignature } from './mbox-signature.ts'

type CallbackRequest = FastifyRequest<{ Params: { oaHash: string } }>

export function addMboxRoutes(app: FastifyInstance, parts: SourceParts): void {
  const accounts = new AdmittingAccounts<string>(
    parts.source,
    (oaHash) => findAccountByOaHash(parts.database, oaHash),
    (oaHash) => createHash('sha256').update(oaHash).digest('base64'),
  )
  const options = { schema: chatCallbackSchema, config: { bodies: parts.bodies } }
  app.post(callbackPath(':oaHash'), options, (request: CallbackRequest, reply) =>
    repeatWhileStale((isAgain) => receiveCallback(parts, accounts, request, reply, isAgain)),
  )
}

async function receiveCallback(
  { source, database, intake, counts, spareSigned, now }: SourceParts,
  accounts: AdmittingAccounts<string>,
  request: CallbackRequest,
  reply: FastifyReply,
  isAgain: boolean,
): Promise<Reception> {
  database.requireConfigured()
  const { oaHash } = request.params
  if (!isStorableText(oaHash)) throw new AppError('unknown_account')
  const body = bodyBytes(request)
  const signature = {
    signature: request.headers['x-chatwoot-signature'],
    timestamp: request.headers['x-chatwoot-timestamp'],
  }
  const found = await accounts.find(
    oaHash,
    isAgain,
    ({ chatSecret }) => chatSecret === null || hasValidChatSignature(body, signature, chatSecret, now()),
  )
  if (found === null) throw new AppError('unknown_account')
  if (!found.isAccepted) {
    counts.addRefused(found.account.id, source.name)
    throw new AppError('bad_signature')
  }
  const { account, admission, isCached } = found
  const isSigned = account.chatSecret !== null
  if (isSigned && !isAgain) spareSigned(request, reply)
  const delivery = request.headers['x-chatwoot-delivery']
  const id = typeof delivery === 'string' ? delivery : undefined
  const events = parseChatCallback(body, { id, isSigned }, now(), account.chatInboxId)
  // An empty delivery has no flush, which would check the cached account.
  if (events.length === 0 && isCached) return 'stale'
  return intake.receive(admission, events)
}
