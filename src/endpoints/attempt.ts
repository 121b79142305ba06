/** One attempt to send a delivery. The content is read once the connection is open. */
import type { SecretKeys } from '../config/secret-keys.ts'
import type { LeasedDelivery } from '../intake/flush.ts'
import type { ContentRow, EndpointRow } from './backlog.ts'
import type { Contents } from './contents.ts'
import { contentOf, writeMessage } from './messages.ts'
import type { Message, OpenMessage } from './post.ts'

export class Attempt {
  readonly #secretKeys: SecretKeys
  readonly #contents: Contents
  readonly #endpoint: EndpointRow
  readonly #delivery: LeasedDelivery
  readonly #isProven: boolean
  /** The change number that was read last. Null: the delivery has none. */
  change: bigint | null = null
  /** When the content was read, the delivery existed, and its endpoint was as when the connection was opened. */
  isCurrent = false
  /** Events of the delivery, 1 for a change of a member. Null: the content was not read. */
  events: number | null = null
  /** Time spent on reads from the database. */
  waitedMs = 0

  constructor(
    secretKeys: SecretKeys,
    contents: Contents,
    endpoint: EndpointRow,
    delivery: LeasedDelivery,
    isProven: boolean,
  ) {
    this.#secretKeys = secretKeys
    this.#contents = contents
    this.#endpoint = endpoint
    this.#delivery = delivery
    this.#isProven = isProven
  }

  /** Reads the content and builds the message. Null: there is nothing to send. */
  readonly open = async (): Promise<OpenMessage | null> => {
    const startedAtMs = performance.now()
    const content = await this.#contents.read(this.#delivery, this.#isProven)
    this.waitedMs += performance.now() - startedAtMs
    this.isCurrent = content !== undefined && isSame(this.#endpoint, content.row)
    this.change = content?.row.change ?? null
    if (content === undefined) return null
    this.events = content.row.event_count ?? 1
    let message: Message | null = null
    try {
      if (this.isCurrent) message = writeMessage(contentOf(this.#secretKeys, content.row), Date.now())
    } finally {
      // Also if the message cannot be built: erasures would wait until the session ends.
      if (message === null) content.release()
    }
    return message && { message, release: content.release, whenLost: content.whenLost }
  }
}

const isSame = (endpoint: EndpointRow, now: ContentRow): boolean =>
  now.status === 'active' &&
  now.url === endpoint.url &&
  now.allow_private_network === endpoint.allow_private_network
