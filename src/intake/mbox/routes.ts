/** POST /api/mbox/callback/:oaHash — the support chat's webhook. */
import type { FastifyInstance } from 'fastify'
import { type Account, findAccountByOaHash } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { RememberedAccounts, requireFreshIfEmpty, type SignedSource } from '../admit.ts'
import type { Admission } from '../flush.ts'
import { requireDatabase } from '../require-database.ts'
import { parseChatCallback } from './payload.ts'
import { chatCallbackSchema } from './route-schema.ts'
import { hasValidChatSignature } from './signature.ts'

export function mboxRoutes(app: FastifyInstance, parts: SignedSource): void {
  const accounts = new RememberedAccounts<string>(
    (oaHash) => findAccountByOaHash(requireDatabase(parts).database, oaHash),
    admissionOf,
  )
  const options = { schema: chatCallbackSchema }
  app.post<{ Params: { oaHash: string } }>('/api/mbox/callback/:oaHash', options, async (request, reply) => {
    const { intake } = requireDatabase(parts)
    const { oaHash } = request.params
    if (!isStorableText(oaHash)) throw new AppError('unknown_account')
    const body = bodyBytes(request)
    const signature = {
      signature: request.headers['x-chatwoot-signature'],
      timestamp: request.headers['x-chatwoot-timestamp'],
    }
    const delivery = request.headers['x-chatwoot-delivery']
    const deliveryId = typeof delivery === 'string' ? delivery : undefined
    const unknown = () => new AppError('unknown_account')
    let isSigned = false
    try {
      return await accounts.admit(oaHash, unknown, async ({ account, admission }, isFresh) => {
        isSigned =
          account.chatSecret !== null &&
          hasValidChatSignature(body, signature, account.chatSecret, parts.now())
        if (account.chatSecret !== null && !isSigned) {
          if (isFresh) parts.onRefused(account.id, 'mbox')
          throw new AppError('bad_signature')
        }
        const events = parseChatCallback(body, deliveryId, parts.now(), account.chatInboxId)
        requireFreshIfEmpty(events, isFresh)
        return await intake.receive(admission, events)
      })
    } finally {
      if (isSigned) parts.onSigned(request, reply)
    }
  })
}

function admissionOf({ id, oaHash, chatSecret, chatInboxId }: Account): Admission {
  const credential = `${oaHash.reveal()} ${chatSecret?.reveal() ?? ''} ${chatInboxId ?? ''}`
  return { accountId: id, source: 'mbox', credential }
}
