/**
 * One request to an endpoint:
 *
 * 1. `connect` takes an idle connection, or opens a new one. Until it is open, nobody needs the body.
 * 2. `send` writes the body within WRITE_MAX_MS, and says when the kernel has it, or when the connection is closed.
 * 3. It reads the response. Only its status and Retry-After count.
 *
 * If an idle connection turns out to be closed, the result is STALE, and the caller repeats all steps.
 */
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Socket } from 'node:net'
import { AGENT, EgressProxy, ProxyFault, TLS } from '../http/egress-proxy.ts'
import {
  type AddressChecks,
  type CheckedAddress,
  checkAddress,
  type EndpointAddress,
  isPublicAddress,
  RefusedUrl,
} from './address.ts'
import { type Share, UnresolvedName } from './resolver.ts'
import { limitResponse, type SeenResponse } from './response.ts'

/** Includes connecting. */
export const REQUEST_TIMEOUT_MS = 10_000
/** Erasures of the account wait while a body is written, and fail after 4 s: see lock_out_sending in locks.sql. */
const WRITE_MAX_MS = 1_000

const publicAgent = new HttpsAgent({ ...AGENT, ...TLS })
const privateAgents = { 'https:': new HttpsAgent({ ...AGENT, ...TLS }), 'http:': new HttpAgent(AGENT) }

export interface Message {
  headers: Record<string, string>
  body: string
}

export interface EndpointResponse {
  /** Null: there was no complete response. */
  status: number | null
  /** Why there was no response, otherwise empty. Never contains text of the endpoint, which may echo the message. */
  reason: string
  retryAfterMs: number | null
}

/** The server closed an idle connection when it was used again. */
export const STALE = 'stale'
export type Ending = EndpointResponse | typeof STALE

/** The reason of an attempt whose signing secret or target could not be decrypted. */
export const UNREADABLE_SECRET = 'not sent: no key of SECRETS_KEYS reads a stored secret'

export const isAccepted = ({ status }: Pick<EndpointResponse, 'status'>): boolean =>
  status !== null && status >= 200 && status < 300

/** Of an endpoint that is down. Any other status is about its delivery alone. */
export const DOWN_STATUSES = [429, 502, 503, 504]

export const isDown = ({ status }: Pick<EndpointResponse, 'status'>): boolean =>
  status === null || DOWN_STATUSES.includes(status)

export const outcomeOf = (response: EndpointResponse) =>
  isAccepted(response) ? 'accepted' : response.status === null ? 'no_response' : 'rejected'

export const notSent = (reason: string): EndpointResponse => ({ status: null, reason, retryAfterMs: null })

/** Errors whose messages contain no text of the endpoint. */
const OURS = [RefusedUrl, UnresolvedName, ProxyFault]

function failure(error: Error & { code?: string }): EndpointResponse {
  const { code = '', cause } = error
  const ours = [error, cause].find((fault) => OURS.some((kind) => fault instanceof kind))
  // Only codes of Node.js and OpenSSL.
  const known = /^[A-Z][A-Z0-9_]{1,60}$/.test(code) ? code : 'the connection failed'
  return notSent(ours ? (ours as Error).message : `no response: ${known}`)
}

/**
 * Returns the open connection, or why there is none.
 * @param deadlineMs of performance.now(). It holds for connecting and sending, not for what the caller does between them.
 * @param seen keeps the beginning of the response
 */
export const connect = (
  address: CheckedAddress | RefusedUrl,
  deadlineMs: number,
  seen?: SeenResponse,
): Promise<Connection | Ending> =>
  new Promise((resolve) => {
    if (address instanceof RefusedUrl) resolve(notSent(address.message))
    else new Connection(address, deadlineMs, seen, resolve)
  })

/** An open connection, for one request. */
export class Connection {
  readonly #request: ClientRequest
  readonly #deadlineMs: number
  readonly #seen: SeenResponse | undefined
  /** of the promise of the current step */
  #resolve: (result: Connection | Ending) => void
  #timer: NodeJS.Timeout
  #response: IncomingMessage | null = null
  #isTooLong = false
  #ending: Ending | null = null

  constructor(
    { url, allowPrivateNetwork, route }: CheckedAddress,
    deadlineMs: number,
    seen: SeenResponse | undefined,
    resolve: (result: Connection | Ending) => void,
  ) {
    this.#deadlineMs = deadlineMs
    this.#seen = seen
    this.#resolve = resolve
    const isHttp = url.protocol === 'http:'
    const protocol = isHttp ? 'http:' : 'https:'
    const isProxied = route instanceof EgressProxy
    const direct = allowPrivateNetwork ? privateAgents[protocol] : publicAgent
    this.#request = (isHttp ? httpRequest : httpsRequest)(url, {
      method: 'POST',
      ...(isProxied ? { agent: route.agents[protocol] } : { agent: direct, lookup: route }),
    })
    this.#timer = this.#startTimer()
    this.#request.on('error', (error) => this.#fail(error))
    this.#request.once('close', () => {
      // Most responses are complete by now.
      if (this.#response?.complete !== true) this.#end(notSent('no response: the connection was closed'))
    })
    this.#request.on('response', (response) => this.#receive(response))
    this.#request.once('socket', (socket: Socket & { encrypted?: boolean }) => {
      this.#limit(socket)
      const open = () => {
        if (!isProxied && !allowPrivateNetwork && !isPublicAddress(socket.remoteAddress ?? ''))
          return this.abort('the connection leads to an address that is not public')
        clearTimeout(this.#timer)
        this.#resolve(this)
      }
      if (!socket.connecting) open()
      else socket.once(socket.encrypted === true ? 'secureConnect' : 'connect', open)
    })
  }

  /** Never rejects. @param written is called when the kernel has the last byte, or when no byte follows */
  send({ headers, body }: Message, written: () => void = () => undefined): Promise<Ending> {
    if (this.#ending !== null) {
      written()
      return Promise.resolve(this.#ending)
    }
    this.#timer = this.#startTimer()
    const reason = `the endpoint did not take the request within ${WRITE_MAX_MS / 1000} s`
    const timer = setTimeout(() => this.abort(reason), WRITE_MAX_MS)
    const end = () => {
      clearTimeout(timer)
      written()
    }
    this.#request.once('finish', end)
    this.#request.once('close', end)
    for (const [name, value] of Object.entries(headers)) this.#request.setHeader(name, value)
    this.#request.end(body)
    return new Promise((resolve) => {
      this.#resolve = resolve as (result: Connection | Ending) => void
    })
  }

  /** Closes the connection if nothing was sent. */
  end(): void {
    if (!this.#request.writableEnded) this.abort('nothing was sent')
  }

  /** Closes the connection. @param reason why there is no response */
  abort(reason: string): void {
    this.#end(notSent(reason))
    this.#request.destroy()
  }

  /** An AbortSignal would take 8 µs of the 170 µs per request. */
  #startTimer(): NodeJS.Timeout {
    const reason = `no response within ${REQUEST_TIMEOUT_MS / 1000} s`
    return setTimeout(() => this.abort(reason), this.#deadlineMs - performance.now())
  }

  #limit(socket: Socket): void {
    const endBudget = limitResponse(socket, () => {
      this.#isTooLong = true
      // The parser may not have seen the beginning of the response yet.
      setImmediate(() => this.#fail(new Error()))
    })
    this.#request.once('close', endBudget)
  }

  #receive(response: IncomingMessage): void {
    if (!this.#request.writableEnded) this.abort('the endpoint responded before it was sent anything')
    this.#response = response
    this.#seen?.watch(response)
    response.on('error', (error) => this.#fail(error))
    response.once('end', () => {
      this.#end(endpointResponseOf(response))
      // The endpoint responded before it received the whole body.
      if (!this.#request.writableFinished) this.#request.destroy()
    })
    response.resume()
  }

  #fail(error: Error & { code?: string }): void {
    const isReset = error.code === 'ECONNRESET' || error.code === 'EPIPE'
    const isStale = this.#request.reusedSocket && isReset && this.#response === null
    this.#end(isStale && !this.#isTooLong ? STALE : failure(error))
    this.#request.destroy()
  }

  /** Only the first call counts. */
  #end(ending: Ending): void {
    this.#ending ??= this.#isTooLong ? this.#endingOfTooLong() : ending
    clearTimeout(this.#timer)
    this.#resolve(this.#ending)
  }

  /** The status of a response that is too long still counts. */
  #endingOfTooLong(): Ending {
    return this.#response === null ? notSent('the response is too long') : endpointResponseOf(this.#response)
  }
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

/** Sends a message that is ready. */
export async function sendNow(
  share: Share,
  endpoint: EndpointAddress,
  message: Message,
  checks: AddressChecks,
  seen?: SeenResponse,
): Promise<EndpointResponse> {
  const address = checkAddress(share, endpoint, checks)
  const deadlineMs = performance.now() + REQUEST_TIMEOUT_MS
  for (;;) {
    const connection = await connect(address, deadlineMs, seen)
    const ending = connection instanceof Connection ? await connection.send(message) : connection
    // Other idle connections may be closed, too, so this is a loop.
    if (ending !== STALE) return ending
  }
}
