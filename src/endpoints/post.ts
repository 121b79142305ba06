/**
 * One request to an endpoint:
 *
 * 1. Take an idle connection, or open a new one.
 * 2. Once it is connected, `open` reads the content and builds the message. Until then there is no body in memory.
 * 3. Write the body within WRITE_MAX_MS. Then, or when the connection is closed, release the content.
 * 4. Read the response. Only its status and Retry-After count.
 *
 * If an idle connection turns out to be closed, all steps are repeated, and the content is read again.
 */
import { constants } from 'node:crypto'
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Socket } from 'node:net'
import {
  isPublicAddress,
  type Receiver,
  type ReceiverChecks,
  RefusedUrl,
  readTarget,
  type Target,
} from './address.ts'
import { type Share, UnresolvedName } from './resolver.ts'
import { limitResponse } from './response.ts'

/** Includes connecting. */
const REQUEST_TIMEOUT_MS = 10_000
/** Erasures of the account wait while a body is written, and fail after 4 s: see lock_out_sending in locks.sql. */
const WRITE_MAX_MS = 1_000
/** The same as ENDPOINT_IN_FLIGHT_MAX in queue.ts. */
const IDLE_SOCKETS_MAX = 16
/** Less than the idle timeouts of common servers and proxies. */
const IDLE_SOCKET_MS = 4_000

const AGENT = { keepAlive: true, maxFreeSockets: IDLE_SOCKETS_MAX, timeout: IDLE_SOCKET_MS }
/** Otherwise a server could request one handshake after the other on one connection. */
const TLS = { secureOptions: constants.SSL_OP_NO_RENEGOTIATION }
const publicAgent = new HttpsAgent({ ...AGENT, ...TLS })
const privateAgents = { 'https:': new HttpsAgent({ ...AGENT, ...TLS }), 'http:': new HttpAgent(AGENT) }

export interface Message {
  headers: Record<string, string>
  body: string
}

/** A message, and the function to call when its body is written or will not be written. */
export interface OpenMessage {
  message: Message
  release: () => void
}

export interface EndpointResponse {
  /** Null: there was no complete response. */
  status: number | null
  /** Why there was no response, otherwise empty. Never contains text of the receiver, which may echo the message. */
  reason: string
  retryAfterMs: number | null
}

/** The reason of an attempt whose signing secret or target could not be decrypted. */
export const UNREADABLE_SECRET = 'not sent: no key of SECRETS_KEYS reads a stored secret'

export const isAccepted = ({ status }: Pick<EndpointResponse, 'status'>): boolean =>
  status !== null && status >= 200 && status < 300

/** Of a receiver that is down. Any other status is about its delivery alone. */
export const DOWN_STATUSES = [429, 502, 503, 504]

export const isDown = ({ status }: Pick<EndpointResponse, 'status'>): boolean =>
  status === null || DOWN_STATUSES.includes(status)

export const outcomeOf = (response: EndpointResponse) =>
  isAccepted(response) ? 'accepted' : response.status === null ? 'no_response' : 'rejected'

export const notSent = (reason: string): EndpointResponse => ({ status: null, reason, retryAfterMs: null })

/** Returns null if nothing is left to send. @param stop is called if the message may no longer be written */
type Open = (stop: () => void) => Promise<OpenMessage | null>

/** Sees the response before it is read. */
type Watch = (response: IncomingMessage) => void

/** Returns null if there was nothing to send. Rejects only if the message cannot be read or built. */
export async function post(target: Target, open: Open, watch?: Watch): Promise<EndpointResponse | null> {
  const deadlineMs = performance.now() + REQUEST_TIMEOUT_MS
  for (;;) {
    try {
      return await send(target, open, deadlineMs, watch)
    } catch (error) {
      if (error instanceof NotOpened) throw error.cause
      // The server closed an idle connection when it was used again. Its other connections may be closed, too, so this is a loop.
      if (!(error instanceof StaleConnection)) return failure(error as Error)
    }
  }
}

class StaleConnection extends Error {}

/** This process ended the attempt. */
class Ended extends Error {}

/** A fault of this process or its database, not of the endpoint. */
class NotOpened extends Error {}

/** Errors whose messages contain no text of the receiver. */
const OURS = [RefusedUrl, UnresolvedName, Ended]

function failure(error: Error & { code?: string }): EndpointResponse {
  const { code = '', cause } = error
  const ours = [error, cause].find((fault) => OURS.some((kind) => fault instanceof kind))
  // Only codes of Node.js and OpenSSL.
  const known = /^[A-Z][A-Z0-9_]{1,60}$/.test(code) ? code : 'the connection failed'
  return notSent(ours ? (ours as Error).message : `no response: ${known}`)
}

function send(
  { url, allowPrivateNetwork, lookup }: Target,
  open: Open,
  deadlineMs: number,
  watch?: Watch,
): Promise<EndpointResponse | null> {
  return new Promise((resolve, reject) => {
    const isHttp = url.protocol === 'http:'
    const agent = allowPrivateNetwork ? privateAgents[isHttp ? 'http:' : 'https:'] : publicAgent
    const request = (isHttp ? httpRequest : httpsRequest)(url, { method: 'POST', agent, lookup })
    // An AbortSignal would take 8 µs of the 170 µs per request.
    let isOpening = false
    const fail = (error: Error) => {
      reject(error)
      request.destroy()
    }
    const end = () => {
      const late = new Ended(`no response within ${REQUEST_TIMEOUT_MS / 1000} s`)
      fail(isOpening ? new NotOpened('the message was not read', { cause: late }) : late)
    }
    const timer = setTimeout(end, deadlineMs - performance.now())
    request.once('close', () => clearTimeout(timer))
    if (watch) request.on('response', watch)
    readResponse(request, resolve, fail)
    const start = async (socket: Socket) => {
      if (!allowPrivateNetwork && !isPublicAddress(socket.remoteAddress ?? ''))
        return fail(new RefusedUrl('the connection leads to an address that is not public'))
      try {
        isOpening = true
        const opened = await open(() =>
          fail(new Ended('the database was lost while the request was written')),
        )
        isOpening = false
        if (opened !== null) write(request, opened, fail)
        else {
          resolve(null)
          request.destroy()
        }
      } catch (cause) {
        fail(new NotOpened('the message could not be built', { cause }))
      }
    }
    request.on('socket', (socket: Socket & { encrypted?: boolean }) => {
      if (!socket.connecting) void start(socket)
      else socket.once(socket.encrypted === true ? 'secureConnect' : 'connect', () => start(socket))
    })
  })
}

/** Only the first call of `resolve` or `fail` counts. */
function readResponse(
  request: ClientRequest,
  resolve: (response: EndpointResponse) => void,
  fail: (error: Error) => void,
): void {
  let response: IncomingMessage | null = null
  let isTooLong = false
  const end = (error: Error & { code?: string }) => {
    const isStale = request.reusedSocket && ['ECONNRESET', 'EPIPE'].includes(error.code ?? '')
    // The status of a response that is too long still counts.
    if (isTooLong && response !== null) resolve(endpointResponseOf(response))
    if (isTooLong) fail(new Ended('the response is too long'))
    else fail(isStale && response === null ? new StaleConnection() : error)
  }
  request.on('error', end)
  request.once('close', () => {
    // Most responses are complete by now. Creating an error for them would take 20 µs.
    if (response?.complete !== true) end(new Ended('no response: the connection was closed'))
  })
  request.once('socket', (socket: Socket) => {
    const endBudget = limitResponse(socket, () => {
      isTooLong = true
      // The parser may not have seen the beginning of the response yet.
      setImmediate(end, new Ended('the response is too long'))
    })
    request.once('close', endBudget)
  })
  request.on('response', (received) => {
    if (!request.writableEnded) return fail(new Ended('the receiver responded before it was sent anything'))
    response = received
    received.on('error', end)
    received.once('end', () => {
      resolve(endpointResponseOf(received))
      // The receiver responded before it received the whole body.
      if (!request.writableFinished) request.destroy()
    })
    received.resume()
  })
}

function write(
  request: ClientRequest,
  { message, release }: OpenMessage,
  fail: (error: Error) => void,
): void {
  if (request.destroyed) {
    release()
    return
  }
  const late = () => new Ended(`the receiver did not take the request within ${WRITE_MAX_MS / 1000} s`)
  const timer = setTimeout(() => fail(late()), WRITE_MAX_MS)
  const end = () => {
    clearTimeout(timer)
    release()
  }
  // On `finish`, the kernel has the last byte. On `close`, no byte follows.
  request.once('finish', end)
  request.once('close', end)
  for (const [name, value] of Object.entries(message.headers)) request.setHeader(name, value)
  request.end(message.body)
}

function endpointResponseOf({ statusCode, headers }: IncomingMessage): EndpointResponse {
  return { status: statusCode ?? null, reason: '', retryAfterMs: retryAfterMs(headers['retry-after']) }
}

/** Reads seconds or a date in the preferred format of RFC 9110. Returns null for anything else. */
function retryAfterMs(value: string | undefined): number | null {
  if (value === undefined) return null
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000
  if (!/^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(value)) return null
  const ms = Date.parse(value) - Date.now()
  return Number.isFinite(ms) ? Math.max(0, ms) : null
}

export async function sendNow(
  share: Share,
  receiver: Receiver,
  message: Message,
  checks: ReceiverChecks,
  watch?: Watch,
): Promise<EndpointResponse> {
  const target = readTarget(share, receiver, checks)
  if (target instanceof RefusedUrl) return notSent(target.message)
  const response = await post(target, async () => ({ message, release: () => undefined }), watch)
  return response ?? notSent('nothing was sent')
}
