/** POST /api/mbox/callback/:oaHash — the support chat's webhook. */
import type { FastifyInstance } from 'fastify'
import { type Account, type AccountId, findAccountByOaHash } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import type { SpareSigned } from '../../http/rate-limit.ts'
import type { Database } from '../../postgres/database.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { RememberedAccounts } from '../admit.ts'
import type { Source } from '../event.ts'
import type { Admission } from '../flush.ts'
import { type Intake, StaleAdmission } from '../receive.ts'
import { requireDatabase } from '../require-database.ts'
import { parseChatCallback } from './payload.ts'
import { hasValidChatSignature } from './signature.ts'

interface Parts {
  database: Database | null
  intake: Intake | null
  /** the sender proved who it is: its request need not count against its address */
  onSigned: SpareSigned
  /** its signature was wrong, on the account as it is now */
  onRefused: (accountId: AccountId, source: Source) => void
  now: () => number
}

export function mboxRoutes(app: FastifyInstance, parts: Parts): void {
  const accounts = new RememberedAccounts<string>((oaHash) =>
    findAccountByOaHash(requireDatabase(parts).database, oaHash),
  )
  app.post<{ Params: { oaHash: string } }>('/api/mbox/callback/:oaHash', async (request, reply) => {
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
      return await accounts.admit(oaHash, unknown, async (account, isFresh) => {
        isSigned =
          account.chatSecret !== null &&
          hasValidChatSignature(body, signature, account.chatSecret, parts.now())
        if (account.chatSecret !== null && !isSigned) {
          if (isFresh) parts.onRefused(account.id, 'mbox')
          throw new AppError('bad_signature')
        }
        const events = parseChatCallback(body, deliveryId, parts.now())
        if (events.length === 0 && !isFresh) throw new StaleAdmission()
        return await intake.receive(admissionOf(account), events)
      })
    } finally {
      if (isSigned) parts.onSigned(request, reply)
    }
  })
}

function admissionOf({ id, oaHash, chatSecret }: Account): Admission {
  return { accountId: id, source: 'mbox', credential: `${oaHash.reveal()} ${chatSecret?.reveal() ?? ''}` }
}
