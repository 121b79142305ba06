/** POST /api/mbox/callback/:oaHash: the support chat's webhook. */
import { createHash } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { findAccountByOaHash } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { AdmittingAccounts } from '../admit.ts'
import type { Receipt } from '../receive.ts'
import type { SourceParts } from '../source.ts'
import { callbackPath } from './path.ts'
import { parseChatCallback } from './payload.ts'
import { chatCallbackSchema } from './route-schema.ts'
import { hasValidChatSignature } from './signature.ts'

type CallbackRequest = FastifyRequest<{ Params: { oaHash: string } }>

export function addMboxRoutes(app: FastifyInstance, parts: SourceParts): void {
  const accounts = new AdmittingAccounts<string>(
    parts.source,
    (oaHash) => findAccountByOaHash(parts.database, oaHash),
    (oaHash) => createHash('sha256').update(oaHash).digest('base64'),
  )
  const options = { schema: chatCallbackSchema, config: { bodies: parts.bodies } }
  app.post(callbackPath(':oaHash'), options, (request: CallbackRequest, reply) =>
    receiveCallback(parts, accounts, request, reply),
  )
}

async function receiveCallback(
  { source, database, intake, counts, spareSigned, now }: SourceParts,
  accounts: AdmittingAccounts<string>,
  request: CallbackRequest,
  reply: FastifyReply,
): Promise<Receipt> {
  database.requireConfigured()
  const { oaHash } = request.params
  if (!isStorableText(oaHash)) throw new AppError('unknown_account')
  const body = bodyBytes(request)
  const signature = {
    signature: request.headers['x-chatwoot-signature'],
    timestamp: request.headers['x-chatwoot-timestamp'],
  }
  const delivery = request.headers['x-chatwoot-delivery']
  const deliveryId = typeof delivery === 'string' ? delivery : undefined
  let isSpared = false
  for await (const { account, admission, isCached } of accounts.candidates(oaHash)) {
    if (account.chatSecret !== null) {
      if (!hasValidChatSignature(body, signature, account.chatSecret, now())) {
        if (isCached) continue
        counts.addRefused(account.id, source.name)
        throw new AppError('bad_signature')
      }
      if (!isSpared) spareSigned(request, reply)
      isSpared = true
    }
    const identity = { id: deliveryId, isSigned: account.chatSecret !== null }
    const events = parseChatCallback(body, identity, now(), account.chatInboxId)
    // Nothing is stored for an empty delivery, so no flush would compare a cached account.
    if (events.length === 0 && isCached) continue
    const reception = await intake.receive(admission, events)
    if (reception === 'stale') continue
    if (reception === 'overloaded') throw new AppError('unavailable', { retryAfterSeconds: 1 })
    return reception
  }
  throw new AppError('unknown_account')
}
