/** One request to an endpoint. */
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Socket } from 'node:net'
import { lookupPublic, RefusedUrl } from './address.ts'

/** From the beginning of the connection to the end of the response. */
const REQUEST_TIMEOUT_MS = 10_000
const ANSWER_MAX_BYTES = 64 * 1024
/** Characters of a response that are kept for operators. */
const ANSWER_KEPT_CHARACTERS = 1_000
/** Per endpoint and kind of agent. As many as requests to one endpoint, see sender.ts. */
const IDLE_SOCKETS_MAX = 16
/** Less than the idle timeouts of common servers and proxies. */
const IDLE_SOCKET_MS = 4_000

const AGENT = { keepAlive: true, maxFreeSockets: IDLE_SOCKETS_MAX, timeout: IDLE_SOCKET_MS }
const publicAgent = new HttpsAgent({ ...AGENT, lookup: lookupPublic })
const privateAgents = { 'https:': new HttpsAgent(AGENT), 'http:': new HttpAgent(AGENT) }

export interface Target {
  url: URL
  allowPrivateNetwork: boolean
}

export interface Message {
  headers: Record<string, string>
  body: string
}

export interface Answer {
  /** Null: there was no complete response. */
  status: number | null
  /** The beginning of the response, or why there was none. */
  text: string
  retryAfterMs: number | null
}

/** Any 2xx. */
export const isAccepted = ({ status }: Pick<Answer, 'status'>): boolean =>
  status !== null && status >= 200 && status < 300

/** Null: there is nothing to send any more. */
export type WriteMessage = (isNewConnection: boolean) => Promise<Message | null>

/**
 * Sends what `write` returns. It is called when the connection stands, so that the message contains what is stored at that
 * moment. Returns null if there was nothing to send. Never rejects because of the endpoint.
 */
export async function post(target: Target, write: WriteMessage): Promise<Answer | null> {
  const deadlineMs = performance.now() + REQUEST_TIMEOUT_MS
  try {
    return await send(target, write, deadlineMs)
  } catch (error) {
    // The server closed an idle connection at the moment at which it was used again.
    if (error instanceof StaleConnection) return send(target, write, deadlineMs).catch(failure)
    return failure(error)
  }
}

class StaleConnection extends Error {}
class TimedOut extends Error {}

/** A fault of our own, such as the database's, is not the endpoint's. */
class NotWritten extends Error {}

function failure(error: unknown): Answer {
  if (error instanceof NotWritten) throw error.cause
  const { code, message, cause } = error as Error & { code?: string }
  const refused = [error, cause].find((fault) => fault instanceof RefusedUrl)
  const text =
    error instanceof TimedOut
      ? `no response within ${REQUEST_TIMEOUT_MS / 1000} s`
      : refused
        ? (refused as RefusedUrl).message
        : `no response: ${code ?? message}`
  return { status: null, text, retryAfterMs: null }
}

function send(
  { url, allowPrivateNetwork }: Target,
  write: WriteMessage,
  deadlineMs: number,
): Promise<Answer | null> {
  return new Promise((resolve, reject) => {
    const isHttp = url.protocol === 'http:'
    const agent = allowPrivateNetwork ? privateAgents[isHttp ? 'http:' : 'https:'] : publicAgent
    const request = (isHttp ? httpRequest : httpsRequest)(url, { method: 'POST', agent })
    // Not an AbortSignal, which takes 8 µs of the 170 µs that a request takes.
    const timer = setTimeout(() => {
      reject(new TimedOut())
      request.destroy()
    }, deadlineMs - performance.now())
    const end = (settle: () => void) => {
      clearTimeout(timer)
      settle()
    }
    request.on('error', (error: Error & { code?: string }) => {
      const isStale = request.reusedSocket && ['ECONNRESET', 'EPIPE'].includes(error.code ?? '')
      end(() => reject(isStale ? new StaleConnection() : error))
    })
    request.on('response', (response) => {
      readAnswer(response).then(
        (answer) => end(() => resolve(answer)),
        (error) => end(() => reject(error)),
      )
    })
    whenConnected(request, (isNewConnection) => {
      write(isNewConnection).then(
        (message) => {
          if (message === null) {
            request.destroy()
            return end(() => resolve(null))
          }
          for (const [name, value] of Object.entries(message.headers)) request.setHeader(name, value)
          request.end(message.body)
        },
        (error) => {
          request.destroy()
          end(() => reject(new NotWritten('the message could not be built', { cause: error })))
        },
      )
    })
  })
}

function whenConnected(request: ClientRequest, ready: (isNewConnection: boolean) => void): void {
  request.on('socket', (socket: Socket & { encrypted?: boolean }) => {
    if (!socket.connecting) ready(false)
    else socket.once(socket.encrypted === true ? 'secureConnect' : 'connect', () => ready(true))
  })
}

async function readAnswer(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = []
  let bytes = 0
  // Leaving the loop early closes the connection.
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes >= ANSWER_MAX_BYTES) break
  }
  const text = Buffer.concat(chunks).toString('utf8').slice(0, ANSWER_KEPT_CHARACTERS)
  return {
    status: response.statusCode ?? null,
    text,
    retryAfterMs: retryAfterMs(response.headers['retry-after']),
  }
}

/** Seconds, or a date. */
function retryAfterMs(value: string | undefined): number | null {
  if (value === undefined) return null
  const ms = /^\d{1,9}$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now()
  return Number.isFinite(ms) ? Math.max(0, ms) : null
}
