/**
 * What is read of a response.
 *
 * The work of the HTTP parser is limited. A socket may deliver 64 KiB at once: if they are `103` responses, one-byte chunks
 * or empty lines, parsing them blocks the event loop for up to 28 ms. So bytes and lines are counted before the parser sees them.
 * Bytes beyond the budget are overwritten, and the connection is closed. A long body is not a failure, because only the status and
 * Retry-After are needed.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'

/** Node.js limits headers to 16 KiB. Bodies of webhook endpoints have a few bytes, error pages a few KiB. */
const RESPONSE_MAX_BYTES = 20 * 1024
/** Lines of headers, of chunk sizes and of bodies: 256 one-byte chunks take 0.7 ms. */
const RESPONSE_MAX_LINES = 512
/** Servers send one or two 1xx responses. Each takes 15 µs. */
const STATUS_LINES_MAX = 8
const STATUS_LINE_1XX = /^HTTP\/\d\.\d 1/
/** Session tickets. Servers send two. */
const TLS_TICKETS_MAX = 8
const LINE_FEED = 10

interface Budget {
  bytes: number
  lines: number
  statusLines: number
  exceeded: () => void
}

/** The budget of the request in flight. Without one, no byte may arrive. */
const budgets = new WeakMap<Socket, Budget>()
const watched = new WeakSet<Socket>()

/** Returns a function that ends the budget. @param exceeded is called before the parser sees bytes beyond the budget */
export function limitResponse(socket: Socket, exceeded: () => void): () => void {
  const budget = {
    bytes: RESPONSE_MAX_BYTES,
    lines: RESPONSE_MAX_LINES,
    statusLines: STATUS_LINES_MAX,
    exceeded,
  }
  budgets.set(socket, budget)
  if (!watched.has(socket)) watch(socket)
  return () => {
    if (budgets.get(socket) === budget) budgets.delete(socket)
  }
}

function watch(socket: Socket): void {
  watched.add(socket)
  socket.prependListener('data', (chunk: Buffer) => {
    const budget = budgets.get(socket)
    const allowed = budget === undefined ? 0 : spend(budget, chunk)
    if (allowed === chunk.length) return
    chunk.fill(0, allowed)
    if (budget === undefined) socket.destroy()
    else budget.exceeded()
  })
  let tickets = 0
  socket.on('session', () => {
    tickets += 1
    if (tickets > TLS_TICKETS_MAX) socket.destroy()
  })
}

function spend(budget: Budget, chunk: Buffer): number {
  const length = Math.min(chunk.length, budget.bytes)
  budget.bytes -= length
  for (let at = chunk.indexOf(LINE_FEED); at >= 0 && at < length; at = chunk.indexOf(LINE_FEED, at + 1)) {
    budget.lines -= 1
    if (STATUS_LINE_1XX.test(chunk.toString('latin1', at + 1, at + 11))) budget.statusLines -= 1
    if (budget.lines < 0 || budget.statusLines < 0) return at
  }
  return length
}

// The beginning of the response, for operators. Its text is cleaned, because the endpoint chooses it.

const HEADERS_MAX = 40
const HEADER_MAX_LENGTH = 300
/** Cookies are credentials of the endpoint. */
const MASKED_HEADERS = ['set-cookie', 'set-cookie2']

export class SeenResponse {
  readonly #isOfRefusals: boolean
  readonly #maxBytes: number
  #headers: Array<[string, string]> = []
  #chunks: Buffer[] = []
  #bytes = 0

  /**
   * @param maxBytes of the body. An endpoint chooses its size.
   * @param isOfRefusals whether a response with status 2xx is of no interest
   */
  constructor(maxBytes: number, isOfRefusals = false) {
    this.#maxBytes = maxBytes
    this.#isOfRefusals = isOfRefusals
  }

  watch(response: IncomingMessage): void {
    const { statusCode = 0 } = response
    if (this.#isOfRefusals && statusCode >= 200 && statusCode < 300) return
    this.#headers = Object.entries(response.headers)
      .slice(0, HEADERS_MAX)
      .map(([name, value = '']) => {
        const text = MASKED_HEADERS.includes(name) ? '•••' : cleaned([value].flat().join(', '))
        return [cleaned(name), text.slice(0, HEADER_MAX_LENGTH)]
      })
    response.on('data', (chunk: Buffer) => {
      // The bytes are copied, because the limit of responses overwrites those beyond it.
      if (this.#bytes < this.#maxBytes)
        this.#chunks.push(Buffer.from(chunk.subarray(0, this.#maxBytes - this.#bytes)))
      this.#bytes += chunk.length
    })
  }

  /** A character that is cut off at the end is left out. */
  get body(): string {
    return cleaned(new TextDecoder().decode(Buffer.concat(this.#chunks), { stream: true }))
  }

  result() {
    return { headers: this.#headers, body: this.body, isCut: this.#bytes > this.#maxBytes }
  }
}

/** Replaces control characters, and those that change the direction of text, which could forge lines of a terminal or a page. */
const cleaned = (text: string): string =>
  text.replace(/\r\n/g, '\n').replace(/(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu, '\ufffd')

export const RESPONSE_TEXT_MAX_BYTES = 1_024
const RESPONSE_TEXT_MAX_LENGTH = 1_000
/** Of HMAC-SHA256 in base64, with which another request could be forged. */
const SIGNATURE = /[A-Za-z0-9+/]{43}=/g
/** Shorter ones are not secrets, and occur in any text. */
const TOKEN_MIN_LENGTH = 6

/** Without signatures, and without values of the query string, which may be tokens that the endpoint echoes. */
export function storedText(body: string, { search }: URL): string | null {
  if (body === '') return null
  const raw = [...search.matchAll(/=([^&]+)/g)].map(([, value = '']) => value)
  const values = [...raw, ...new URLSearchParams(search).values()]
  const text = values
    .filter((value) => value.length >= TOKEN_MIN_LENGTH)
    .reduce((masked, value) => masked.replaceAll(value, '•••'), body.replace(SIGNATURE, '•••'))
    .slice(0, RESPONSE_TEXT_MAX_LENGTH)
    .trim()
  return text === '' ? null : text
}
