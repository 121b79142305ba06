/** POST /api/line/:id and /api/Line/:id — LINE's webhook. */
import type { FastifyInstance } from 'fastify'
import { type Account, findAccount, flagForeignDestination } from '../../accounts/account.ts'
import { USER_ID_MAX_LENGTH } from '../../audience/member.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { parsePathId } from '../../http/path-id.ts'
import type { Database } from '../../postgres/database.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { RememberedAccounts, requireFreshIfEmpty, type SignedSource } from '../admit.ts'
import type { Admission } from '../flush.ts'
import { requireDatabase } from '../require-database.ts'
import { deliveryPaths } from './channel.ts'
import { type LineDelivery, parseLineDelivery } from './payload.ts'
import { lineDeliverySchema } from './route-schema.ts'
import { hasValidLineSignature } from './signature.ts'

export function lineRoutes(app: FastifyInstance, parts: SignedSource): void {
  const accounts = new RememberedAccounts<bigint>(
    (id) => findAccount(requireDatabase(parts).database, id),
    admissionOf,
  )
  for (const path of deliveryPaths(':id')) {
    const options = { schema: lineDeliverySchema(path) }
    app.post<{ Params: { id: string } }>(path, options, async (request, reply) => {
      const { database, intake } = requireDatabase(parts)
      const id = parsePathId(request.params.id)
      if (id === null) throw new AppError('unknown_account')
      const body = bodyBytes(request)
      const signature = request.headers['x-line-signature']
      const unknown = () => new AppError('unknown_account')
      let isSigned = false
      try {
        return await accounts.admit(id, unknown, async ({ account, admission }, isFresh) => {
          isSigned = hasValidLineSignature(body, signature, account.channelSecret)
          if (!isSigned) {
            if (isFresh) parts.onRefused(id, 'line')
            throw new AppError('bad_signature')
          }
          const delivery = parseLineDelivery(body, parts.now())
          requireFreshIfEmpty(delivery.events, isFresh)
          const receipt = await intake.receive(admission, delivery.events)
          await flagIfForeign(database, account, delivery)
          return receipt
        })
      } finally {
        if (isSigned) parts.onSigned(request, reply)
      }
    })
  }
}

function admissionOf({ id, channelSecret }: Account): Admission {
  return { accountId: id, source: 'line', credential: channelSecret?.reveal() ?? '' }
}

/** The signature is the authority, so the events count; but somebody should look at the set-up. */
async function flagIfForeign(
  database: Database,
  account: Account,
  { destination }: LineDelivery,
): Promise<void> {
  if (destination === null || account.botUserId === null || destination === account.botUserId) return
  if (destination === account.foreignDestination || destination.length > USER_ID_MAX_LENGTH) return
  if (!isStorableText(destination)) return
  // The events are committed: a failure to note this must not make the sender repeat them.
  await flagForeignDestination(database, account.id, destination).catch(() => undefined)
}
