/** The program behind the endpoints of the loaded accounts. It strikes from their books what has arrived. */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { Secret } from '../../src/config/secret.ts'
import { signStandard } from '../../src/endpoints/messages.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import type { Book } from './book.ts'

/** Share of messages that are refused with 503, so that retries are part of the load. */
const REFUSED_SHARE = 0.005
/** A body that was written before an erasure may still be in flight: a request takes at most 10 s. */
const IN_FLIGHT_MS = 15_000

export class Receiver {
  /** by their numbers in the paths `/line/0` and `/members/0` */
  readonly books: Book[] = []
  readonly received = { line: 0, members: 0, repeated: 0, refused: 0 }
  readonly #onFault: (error: Error) => void
  readonly #server = createServer((request, response) => {
    this.#receive(request, response).catch((error) => {
      response.destroy()
      if (!request.errored) this.#onFault(error)
    })
  })

  constructor(onFault: (error: Error) => void) {
    this.#onFault = onFault
  }

  /** @returns its address */
  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request)
    const [, format, number] = (request.url as string).split('/')
    const book = this.books[Number(number)]
    if (book !== undefined) verify(request.headers, body, book)
    // The book of an account begins after its endpoints. Until then, its messages are repeated.
    if (book === undefined || Math.random() < REFUSED_SHARE) {
      this.received.refused += 1
      response.writeHead(503).end('busy')
      return
    }
    if (format === 'line') this.#receiveEvents(book, JSON.parse(body).events)
    else this.#receiveChange(book, JSON.parse(body))
    response.end('ok')
  }

  #receiveEvents(book: Book, events: LineEvent[]): void {
    for (const { webhookEventId, type, timestamp, source } of events) {
      requireOwn(book, source.userId, `${type} of ${new Date(timestamp).toISOString()}`)
      this.received.line += 1
      if (!book.owed.delete(webhookEventId)) this.received.repeated += 1
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: a member as the service writes it
  #receiveChange(book: Book, { type, data }: { type: string; data: any }): void {
    this.received.members += 1
    if (type === 'member.erased') book.owedErasures.delete(data.id)
    if (type !== 'member.created' && type !== 'member.updated') return
    requireOwn(book, data.userId, type)
    const person = book.people.get(data.userId)
    if (person === undefined || (person.received && data.updatedAt < person.received.updatedAt)) return
    person.received = data
  }
}

interface LineEvent {
  webhookEventId: string
  type: string
  timestamp: number
  source: { userId: string }
}

function requireOwn({ account, prefix, erased }: Book, userId: string, what: string): void {
  const endpoint = `the endpoint of account ${account.id} (${what})`
  if (!userId.startsWith(prefix)) throw new Error(`${endpoint} received ${userId} of another account`)
  const erasedAtMs = erased.get(userId)
  if (erasedAtMs !== undefined && Date.now() > erasedAtMs + IN_FLIGHT_MS) {
    throw new Error(`${endpoint} received ${userId}, who was erased at ${new Date(erasedAtMs).toISOString()}`)
  }
}

function verify(headers: IncomingHttpHeaders, body: string, { account }: Book): void {
  const content = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`
  const isRight =
    headers['webhook-signature'] === undefined
      ? headers['x-line-signature'] === signLine(body, new Secret(account.channelSecret))
      : headers['webhook-signature'] ===
        `v1,${signStandard(content, new Secret(account.membersSecret ?? ''))}`
  if (!isRight) throw new Error(`the endpoint of account ${account.id} received a wrong signature`)
}
