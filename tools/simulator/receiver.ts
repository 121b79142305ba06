/**
 * A tool behind the service: it receives outgoing webhooks below `/receive`, verifies their signatures and answers as its path says.
 * `/receive/gone` answers 410; any other name, such as `/receive/crm`, answers 200.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { equalInConstantTime, Secret } from '../../src/config/secret.ts'
import { signStandard } from '../../src/endpoints/messages.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { type Misbehaviour, misbehaviourOf } from './misbehaviour.ts'

export const RECEIVER_PATH = '/receive'

/** Within the time limit of the service, 10 s. */
const SLOW_ANSWER_MS = 2_000
/** Standard Webhooks: older messages may be replays. */
const TIMESTAMP_TOLERANCE_SECONDS = 300
/** Recorded requests, which bounds the memory of a long simulation. */
const RECEIPTS_MAX = 10_000

export interface Receipt {
  path: string
  /** chat: a message as the webhooks of chats accept it */
  format: 'line' | 'members' | 'chat' | 'unknown'
  /** null: the receiver has no secret to verify it with */
  isVerified: boolean | null
  // biome-ignore lint/suspicious/noExplicitAny: a receiver reads any message
  body: any
}

export interface ReceiverSettings {
  channelSecret: string
  /** of an endpoint with the format `members`; null: its messages are not verified */
  endpointSecret: string | null
  onReceipt: (receipt: Receipt) => void
}

/** Ways to answer that only a receiver has, beside those of the simulated platform. */
const ANSWERS: Record<string, Misbehaviour> = {
  slow: (_, response) => void setTimeout(() => accept(response), SLOW_ANSWER_MS),
  gone: (_, response) => response.writeHead(410).end('Gone'),
}

const accept = (response: ServerResponse) => response.writeHead(200).end('ok')

/** Records and answers one request. */
export async function receive(
  receipts: Receipt[],
  settings: ReceiverSettings,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const body = await text(request)
  const { url: path = '', headers } = request
  const receipt = { path, ...verify(headers, body, settings), body: parse(body) }
  receipts.push(receipt)
  if (receipts.length > RECEIPTS_MAX) receipts.shift()
  settings.onReceipt(receipt)
  if (receipt.isVerified === false) response.writeHead(403).end('the signature does not match')
  else (answerOf(path) ?? ((_, unharmed) => accept(unharmed)))(request, response)
}

function answerOf(path: string): Misbehaviour | null {
  const name = path.slice(RECEIVER_PATH.length + 1)
  return (Object.hasOwn(ANSWERS, name) ? ANSWERS[name] : misbehaviourOf(name)) ?? null
}

function verify(
  headers: IncomingHttpHeaders,
  body: string,
  { channelSecret, endpointSecret }: ReceiverSettings,
): Pick<Receipt, 'format' | 'isVerified'> {
  const lineSignature = headers['x-line-signature']
  if (typeof lineSignature === 'string') {
    return { format: 'line', isVerified: isEqual(lineSignature, signLine(body, new Secret(channelSecret))) }
  }
  const signatures = headers['webhook-signature']
  if (typeof signatures !== 'string') {
    const isChat = typeof (parse(body) as { text?: unknown } | null)?.text === 'string'
    return isChat ? { format: 'chat', isVerified: null } : { format: 'unknown', isVerified: false }
  }
  if (endpointSecret === null) return { format: 'members', isVerified: null }
  const timestamp = String(headers['webhook-timestamp'])
  const expected = `v1,${signStandard(`${headers['webhook-id']}.${timestamp}.${body}`, new Secret(endpointSecret))}`
  const isRecent = Math.abs(Date.now() / 1000 - Number(timestamp)) <= TIMESTAMP_TOLERANCE_SECONDS
  return {
    format: 'members',
    isVerified: isRecent && signatures.split(' ').some((signature) => isEqual(signature, expected)),
  }
}

const isEqual = (one: string, other: string) => equalInConstantTime(Buffer.from(one), Buffer.from(other))

function parse(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return body
  }
}

/** A receipt in one line: `members  /receive/crm  signature valid  member.updated U4af…`. */
export function describeReceipt({ path, format, isVerified, body }: Receipt): string {
  const signature =
    isVerified === null ? 'signature not checked' : isVerified ? 'signature valid' : 'signature WRONG'
  return [path, format, signature, contentOf(format, body)].join('  ')
}

function contentOf(format: Receipt['format'], body: Receipt['body']): string {
  if (format === 'members') {
    return [body.type, body.data?.userId ?? body.data?.id].filter((part) => part !== undefined).join(' ')
  }
  if (format === 'chat') return body.text.split('\n')[0]
  const events: Array<Record<string, unknown>> = Array.isArray(body?.events) ? body.events : []
  return events.map(({ type, mode }) => (mode === 'standby' ? `${type} (standby)` : type)).join(', ')
}
