import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify'
import { LRUCache } from 'lru-cache'
import {
  type Account,
  findAccount,
  findNamedAccounts,
  flagForeignDestination,
  flagRedelivery,
  takeRedeliveryProof,
} from '../../accounts/account.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
import { parsePathId } from '../../http/path-id.ts'
import { createClientKey } from '../../http/rate-limit.ts'
import {
  EXAMPLE_USER_ID,
  failures,
  jsonBody,
  pathParameter,
  RECEIPT,
  SIGNED_FAILURES,
  TAGS,
} from '../../http/schema-parts.ts'
import { Type } from '../../http/typebox.ts'
import { deliveryPaths, hasValidLineSignature, LINE } from '../../line-api/line-signature.ts'
import type { Database } from '../../postgres/database.ts'
import type { Queryable } from '../../postgres/statement.ts'
import { cacheAccounts, type FindAdmitting, type Found, repeatWhileStale } from '../admit.ts'
import type { Admission } from '../event.ts'
import type { Reception } from '../receive.ts'
import type { SourceModule, SourceParts } from '../source.ts'
import { KeptDeliveries } from './kept-deliveries.ts'
import { parseLineDelivery, readLineEvent } from './line-payload.ts'

export const lineSource: SourceModule = {
  name: LINE,
  isProven: true,
  share: {
    flushConnections: 2,
    maxEvents: 20_000,
    maxPayload: 64 * 1024 * 1024,
    maxBodyBytes: 96 * 1024 * 1024,
  },
  addRoutes: addLineRoutes,
  reparse: (content, occurredAtMs) => readLineEvent(content, occurredAtMs),
}

// POST /api/line/:id and /api/Line/:id: LINE's webhook.

type DeliveryRequest = FastifyRequest<{ Params: { id: string } }>

function addLineRoutes(app: FastifyInstance, parts: SourceParts): void {
  const line: LineParts = {
    ...parts,
    findAdmitting: cacheAccounts(parts.source, async (path: string) => {
      const id = parsePathId(path)
      return id === null ? null : findAccount(parts.database.accounts, id)
    }),
    admit: admitRecipients(parts.database.accounts),
    kept: new KeptDeliveries(parts),
    addressOf: createClientKey(),
  }
  app.addHook('onClose', () => line.kept.stop())
  for (const path of deliveryPaths(':id')) {
    const options = { schema: lineDeliverySchema(path), config: { bodies: parts.bodies } }
    app.post(path, options, (request: DeliveryRequest, reply) =>
      repeatWhileStale(receiveDelivery, line, request, reply),
    )
  }
}

interface LineParts extends SourceParts {
  findAdmitting: FindAdmitting<string>
  admit: ReturnType<typeof admitRecipients>
  kept: KeptDeliveries
  addressOf: (request: FastifyRequest) => string
}

async function receiveDelivery(
  isAgain: boolean,
  { source, database, intake, counts, spareSigned, now, findAdmitting, admit, kept, addressOf }: LineParts,
  request: DeliveryRequest,
  reply: FastifyReply,
): Promise<Reception> {
  database.requireConfigured()
  const body = bodyBytes(request)
  const signature = request.headers['x-line-signature']
  const isSigned = ({ channelSecret }: Account) => hasValidLineSignature(body, signature, channelSecret)
  const found = await findAdmitting(request.params.id, isAgain, isSigned)
  if (found === null) throw new AppError('unknown_account')
  if (!found.isAccepted) {
    counts.add(found.account.id, source.name, { refused: 1 }, 'last_refused_at')
    kept.keep(found.account, addressOf(request), signature, body)
    throw new AppError('bad_signature')
  }
  if (!isAgain) spareSigned(request, reply)
  const { account, isCached } = found
  const { destination, events, isRedelivery } = parseLineDelivery(body, now())
  // An empty delivery has no flush, which would check the cached account.
  if (events.length === 0 && isCached) return 'stale'
  const isForeign = isForAnotherBot(account, destination)
  const admission = isForeign ? await admit(found, destination) : found.admission
  const isOwn = destination === account.botUserId || admission.accountId !== account.id
  const reception = await intake.receive(admission, events, { destination: isOwn ? null : destination })
  if (reception === 'stale') return reception
  if (reply.elapsedTime > LINE_WAITS_MS) counts.add(account.id, source.name, { late: 1 })
  if (!isOwn) await flagIfForeign(database, account, admission, destination)
  if (isRedelivery) await once(redelivered, admission, () => flagRedelivery(database, admission.accountId))
  else if (events.length > 0 && account.isProofArmed && (await mustRefuse(database, account)))
    throw new AppError('unavailable', {
      message: 'Stored. Refused once, to prove that webhook redelivery is on',
      retryAfterSeconds: 1,
    })
  return reception
}

/** Afterwards, LINE counts the delivery as failed. */
const LINE_WAITS_MS = 2_000

// An account is read again after each change of its credentials, and every 30 s. What a delivery says about the account is written once
// for each object that was read, so a misconfigured account costs no statement per delivery.

const flagged = new WeakSet<Admission>()
const redelivered = new WeakSet<Admission>()
const proofsTried = new WeakSet<Account>()

/** Returns what `write` returns, or null if it is done already or fails. The events are committed, so a failure must not cause a retry. */
async function once<T extends object, R>(
  done: WeakSet<T>,
  of: T,
  write: () => Promise<R>,
): Promise<R | null> {
  if (done.has(of)) return null
  done.add(of)
  return write().catch(() => {
    done.delete(of)
    return null
  })
}

const mustRefuse = async (database: Database, account: Account): Promise<boolean> =>
  (await once(proofsTried, account, () => takeRedeliveryProof(database, account.id))) === true

/** Flags a delivery for a bot that no account has. Its signature is valid, so its events count, but the set-up may be wrong. */
async function flagIfForeign(
  database: Database,
  account: Account,
  admission: Admission,
  destination: string | null,
): Promise<void> {
  if (!isForAnotherBot(account, destination) || destination === account.foreignDestination) return
  const tenant = { accountId: account.id, organizationId: account.organizationId }
  await once(flagged, admission, () =>
    flagForeignDestination(database.forTenant(tenant), account.id, destination),
  )
}

const DELIVERY = {
  destination: 'U8e742f61d673b39c7fff3cecb7536ef0',
  events: [
    {
      type: 'follow',
      mode: 'active',
      timestamp: 1700000000000,
      webhookEventId: '01HF7YAT00AAAAAAAAAAAAAAAA',
      deliveryContext: { isRedelivery: false },
      source: { type: 'user', userId: EXAMPLE_USER_ID },
    },
  ],
}

const WEBHOOK = Type.Object(
  {
    destination: Type.Optional(Type.String({ description: 'User id of the bot.' })),
    events: Type.Array(Type.Object({}, { additionalProperties: true }), {
      description: 'Events of any type. Empty when LINE verifies the webhook URL.',
    }),
  },
  { additionalProperties: true, description: 'The body of a LINE webhook.', examples: [DELIVERY] },
)

function lineDeliverySchema(path: string): FastifySchema {
  const [lowerCasePath] = deliveryPaths(':id')
  return {
    operationId: path === lowerCasePath ? 'receiveLineDelivery' : 'receiveLineDeliveryCapitalised',
    summary: 'Receive a webhook delivery from LINE',
    description:
      'LINE signs the raw body with the channel secret. An account without a secret accepts no delivery.',
    tags: [TAGS.intake],
    params: pathParameter('id', 'Id of the official account.'),
    headers: Type.Object({
      'x-line-signature': Type.String({ description: 'Base64 of HMAC-SHA256(channel secret, raw body).' }),
    }),
    body: jsonBody(WEBHOOK),
    response: {
      ...RECEIPT,
      ...failures({ ...SIGNED_FAILURES, 400: 'The body is not valid JSON, or it has no `events` array.' }),
    },
  }
}

// Finds the account whose events a delivery carries. All official accounts of a module channel (LINE Marketplace) share its
// webhook URL and its channel secret. Only `destination` identifies the bot. The account is cached, so the flush checks in the
// transaction that stores the events that none of these accounts has changed.

/**
 * Destinations cached per account in a path, so that one sender's invented destinations do not evict those of others. A cache miss
 * costs a lookup, which is less than the cost of storing the delivery.
 */
const DESTINATIONS_MAX = 1_000

/** The destination's account must have the same organization and secret as the account in the path. */
function admitRecipients(accounts: Queryable) {
  // After a stale admission the account is read again, so its cached destinations are no longer used.
  const cachedOf = new WeakMap<Account, LRUCache<string, Admission>>()
  return async ({ account, admission }: Found, destination: string): Promise<Admission> => {
    const cached = cachedOf.get(account) ?? new LRUCache<string, Admission>({ max: DESTINATIONS_MAX })
    cachedOf.set(account, cached)
    const seen = cached.get(destination)
    if (seen !== undefined) return seen
    const [named] = await findNamedAccounts(accounts, [{ pathAccountId: account.id, destination }])
    const { botVersions, ...receiving } = named ?? { ...admission, botVersions: 0n }
    const foreign = { pathAccountId: account.id, botUserId: destination, botVersions }
    const admitted = { ...admission, ...receiving, foreign }
    cached.set(destination, admitted)
    return admitted
  }
}

/** An account without a bot user id accepts every delivery at its webhook. */
function isForAnotherBot(account: Account, destination: string | null): destination is string {
  return Boolean(destination) && Boolean(account.botUserId) && destination !== account.botUserId
}
