/** The beginning of the response of a receiver, for operators. Its text is cleaned, because the receiver chooses it. */
import type { IncomingMessage } from 'node:http'

const HEADERS_MAX = 40
const HEADER_MAX_LENGTH = 300
/** Cookies are credentials of the receiver. */
const MASKED_HEADERS = ['set-cookie', 'set-cookie2']

export class SeenResponse {
  readonly #maxBytes: number
  #headers: Array<[string, string]> = []
  #chunks: Buffer[] = []
  #bytes = 0

  /** @param maxBytes of the body. A receiver chooses its size. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  watch(response: IncomingMessage): void {
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

/** Stored with a failed attempt. */
export const RESPONSE_TEXT_MAX_BYTES = 1_024
const RESPONSE_TEXT_MAX_LENGTH = 1_000
/** Of HMAC-SHA256 in base64, with which another request could be forged. */
const SIGNATURE = /[A-Za-z0-9+/]{43}=/g
/** Shorter ones are not secrets, and occur in any text. */
const TOKEN_MIN_LENGTH = 6

/** Returns the text to store: without signatures, and without values of the query string, which may be tokens that the receiver echoes. */
export function storedText(body: string, { search }: URL): string | null {
  const raw = [...search.matchAll(/=([^&]+)/g)].map(([, value = '']) => value)
  const values = [...raw, ...new URLSearchParams(search).values()]
  const text = values
    .filter((value) => value.length >= TOKEN_MIN_LENGTH)
    .reduce((masked, value) => masked.replaceAll(value, '•••'), body.replace(SIGNATURE, '•••'))
    .slice(0, RESPONSE_TEXT_MAX_LENGTH)
    .trim()
  return text === '' ? null : text
}
