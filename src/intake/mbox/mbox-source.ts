import { createHash, createHmac } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify'
import { type Account, findAccountByOaHash } from '../../accounts/account.ts'
import { equalInConstantTime, type Secret } from '../../config/secret.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes } from '../../http/body.ts'
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
import { isStorableText } from '../../postgres/storable.ts'
import { cacheAccounts, type FindAdmitting, repeatWhileStale } from '../admit.ts'
import { InvalidEvent } from '../event.ts'
import type { Reception } from '../receive.ts'
import type { SourceModule, SourceParts } from '../source.ts'
import { belongsToOtherInbox, parseChatCallback, readWebhook } from './mbox-payload.ts'

export const mboxSource: SourceModule = {
  name: 'mbox',
  isProven: true,
  share: {
    flushConnections: 1,
    maxEvents: 20_000,
    maxPayload: 64 * 1024 * 1024,
    maxBodyBytes: 96 * 1024 * 1024,
  },
  addRoutes: addMboxRoutes,
  reparse: (content, occurredAtMs, { chatInboxId }) => {
    if (belongsToOtherInbox(content, chatInboxId)) {
      throw new InvalidEvent("the event belongs to another inbox than the account's")
    }
    return readWebhook(content, null, occurredAtMs)
  },
}

// POST /api/mbox/callback/:oaHash: the support chat's webhook.

type CallbackRequest = FastifyRequest<{ Params: { oaHash: string } }>

function addMboxRoutes(app: FastifyInstance, parts: SourceParts): void {
  const findAccount = cacheAccounts(
    parts.source,
    (oaHash: string) => findAccountByOaHash(parts.database.accounts, oaHash),
    (oaHash) => createHash('sha256').update(oaHash).digest('base64'),
  )
  const options = { schema: chatCallbackSchema, config: { bodies: parts.bodies } }
  app.post(callbackPath(':oaHash'), options, (request: CallbackRequest, reply) =>
    repeatWhileStale(receiveCallback, parts, findAccount, request, reply),
  )
}

async function receiveCallback(
  isAgain: boolean,
  { source, database, intake, counts, spareSigned, now }: SourceParts,
  findAccount: FindAdmitting<string>,
  request: CallbackRequest,
  reply: FastifyReply,
): Promise<Reception> {
  database.requireConfigured()
  const { oaHash } = request.params
  if (!isStorableText(oaHash)) throw new AppError('unknown_account')
  const body = bodyBytes(request)
  const accepts = ({ chatSecret }: Account) =>
    chatSecret === null || hasValidChatSignature(body, request.headers, chatSecret, now())
  const found = await findAccount(oaHash, isAgain, accepts)
  if (found === null) throw new AppError('unknown_account')
  if (!found.isAccepted) {
    counts.add(found.account.id, source.name, { refused: 1 }, 'last_refused_at')
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

const chatCallbackSchema: FastifySchema = {
  operationId: 'receiveChatCallback',
  summary: 'Receive a webhook from the support chat',
  description: `Accepts the webhook of Chatwoot, as one object or as an array. An account with a chat secret requires the signature
headers. The timestamp may differ from the time of the service by 5 minutes.`,
  tags: [TAGS.intake],
  params: pathParameter('oaHash', 'Secret name of the official account.'),
  headers: Type.Object({
    'x-chatwoot-signature': Type.Optional(
      Type.String({ description: '`sha256=` and hex HMAC-SHA256(chat secret, "{timestamp}.{raw body}").' }),
    ),
    'x-chatwoot-timestamp': Type.Optional(Type.String({ description: 'Unix time in seconds.' })),
    'x-chatwoot-delivery': Type.Optional(
      Type.String({
        description: 'Id that identifies a redelivery. If the callback is signed, its body does.',
      }),
    ),
  }),
  body: jsonBody({
    description: 'One webhook, or an array of webhooks.',
    examples: [
      {
        event: 'conversation_status_changed',
        id: 31,
        status: 'resolved',
        channel: 'Channel::Line',
        contact_inbox: { source_id: EXAMPLE_USER_ID },
        updated_at: 1700000060.5,
      },
    ],
  }),
  response: {
    ...RECEIPT,
    ...failures({
      ...SIGNED_FAILURES,
      400: 'The body is not valid JSON, or not a webhook of the support chat.',
    }),
  },
}

export function callbackPath(oaHash: string): string {
  return `/api/mbox/callback/${oaHash}`
}

/** Allows for clock skew, and lets a captured callback expire. */
const SIGNATURE_TOLERANCE_MS = 5 * 60 * 1000

/** Checks Chatwoot's signature: `sha256=` and the hex HMAC-SHA256 over `{timestamp}.{raw body}`, keyed with the webhook's secret. */
function hasValidChatSignature(
  body: Buffer,
  headers: FastifyRequest['headers'],
  chatSecret: Secret,
  nowMs: number,
): boolean {
  const { 'x-chatwoot-signature': signature, 'x-chatwoot-timestamp': timestamp } = headers
  if (chatSecret.isBlank()) return false
  if (typeof signature !== 'string' || typeof timestamp !== 'string') return false
  if (!/^\d{1,12}$/.test(timestamp)) return false
  if (Math.abs(Number(timestamp) * 1000 - nowMs) > SIGNATURE_TOLERANCE_MS) return false
  return equalInConstantTime(Buffer.from(signature), Buffer.from(signChat(body, timestamp, chatSecret)))
}

/** Returns the value of x-chatwoot-signature for this body. */
export function signChat(body: Buffer | string, timestamp: string, chatSecret: Secret): string {
  const hmac = createHmac('sha256', chatSecret.key()).update(`${timestamp}.`).update(body)
  return `sha256=${hmac.digest('hex')}`
}
