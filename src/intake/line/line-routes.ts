/** POST /api/line/:id and /api/Line/:id: LINE's webhook. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type Account, findAccount, flagForeignDestination } from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { parsePathId } from '../../http/path-id.ts'
import type { Database } from '../../postgres/database.ts'
import { AdmittingAccounts, repeatWhileStale } from '../admit.ts'
import type { Reception } from '../receive.ts'
import type { SourceParts } from '../source.ts'
import { parseLineDelivery } from './line-payload.ts'
import { lineDeliverySchema } from './line-route-schema.ts'
import { deliveryPaths, hasValidLineSignature } from './line-signature.ts'
import { isForAnotherBot, Recipients } from './recipients.ts'

type DeliveryRequest = FastifyRequest<{ Params: { id: string } }>

export function addLineRoutes(app: FastifyInstance, parts: SourceParts): void {
  const line: LineParts = {
    ...parts,
    accounts: new AdmittingAccounts<bigint>(parts.source, (id) => findAccount(parts.database, id)),
    recipients: new Recipients(parts.database),
  }
  for (const path of deliveryPaths(':id')) {
    const options = { schema: lineDeliverySchema(path), config: { bodies: parts.bodies } }
    app.post(path, options, (request: DeliveryRequest, reply) =>
      repeatWhileStale((isAgain) => receiveDelivery(line, request, reply, isAgain)),
    )
  }
}

interface LineParts extends SourceParts {
  accounts: AdmittingAccounts<bigint>
  recipients: Recipients
}

async function receiveDelivery(
  { source, database, intake, counts, spareSigned, now, accounts, recipients }: LineParts,
  request: DeliveryRequest,
  reply: FastifyReply,
  isAgain: boolean,
): Promise<Reception> {
  database.requireConfigured()
  const id = parsePathId(request.params.id)
  if (id === null) throw new AppError('unknown_account')
  const body = bodyBytes(request)
  const signature = request.headers['x-line-signature']
  const isSigned = ({ channelSecret }: Account) => hasValidLineSignature(body, signature, channelSecret)
  const found = await accounts.find(id, isAgain, isSigned)
  if (found === null) throw new AppError('unknown_account')
  if (!found.isAccepted) {
    counts.addRefused(id, source.name)
    throw new AppError('bad_signature')
  }
  if (!isAgain) spareSigned(request, reply)
  const { account, isCached } = found
  const { destination, events } = await parseLineDelivery(body, now())
  // An empty delivery has no flush, which would check the cached account.
  if (events.length === 0 && isCached) return 'stale'
  const admission = await recipients.admit(found, destination)
  const isOwn = destination === account.botUserId || admission.accountId !== account.id
  const reception = await intake.receive(admission, events, { destination: isOwn ? null : destination })
  if (reception !== 'stale' && !isOwn) await flagIfForeign(database, account, destination)
  return reception
}

/** Flags a delivery for a bot that no account has. Its signature is valid, so its events count, but the set-up may be wrong. */
async function flagIfForeign(
  database: Database,
  account: Account,
  destination: string | null,
): Promise<void> {
  if (!isForAnotherBot(account, destination) || destination === account.foreignDestination) return
  // The events are committed. A failure here must not cause a retry.
  const tenant = { accountId: account.id, organizationId: account.organizationId }
  await flagForeignDestination(database.forTenant(tenant), account.id, destination).catch(() => undefined)
}
