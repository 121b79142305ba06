/** POST /api/mbox/callback/:oaHash — the support chat's webhook. */
import type { FastifyInstance } from 'fastify'
import { type Account, findAccountByOaHash } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import type { SpareSigned } from '../../http/rate-limit.ts'
import type { Database } from '../../postgres/database.ts'
import { isStorableText } from '../../postgres/storable.ts'
import type { Intake } from '../receive.ts'
import { requireDatabase } from '../require-database.ts'
import { parseChatCallback } from './payload.ts'
import { hasValidChatSignature } from './signature.ts'

interface Parts {
  database: Database | null
  intake: Intake | null
  /** the sender proved who it is: its request need not count against its address */
  onSigned: SpareSigned
  now: () => number
}

export function mboxRoutes(app: FastifyInstance, parts: Parts): void {
  app.post<{ Params: { oaHash: string } }>('/api/mbox/callback/:oaHash', async (request, reply) => {
    const { database, intake } = requireDatabase(parts)
    const account = await accountOf(database, request.params.oaHash)
    const body = bodyBytes(request)
    if (account.chatSecret !== null) {
      const headers = {
        signature: request.headers['x-chatwoot-signature'],
        timestamp: request.headers['x-chatwoot-timestamp'],
      }
      if (!hasValidChatSignature(body, headers, account.chatSecret, parts.now())) {
        throw new AppError('bad_signature')
      }
      parts.onSigned(request, reply)
    }
    const deliveryId = request.headers['x-chatwoot-delivery']
    const events = parseChatCallback(
      body,
      typeof deliveryId === 'string' ? deliveryId : undefined,
      parts.now(),
    )
    return intake.receive(account.id, events)
  })
}

async function accountOf(database: Database, oaHash: string): Promise<Account> {
  const account = isStorableText(oaHash) ? await findAccountByOaHash(database, oaHash) : null
  if (account === null) throw new AppError('unknown_account')
  return account
}
