/** What deliveries contain, read shortly before they are sent. */
import type { LeasedDelivery } from '../intake/flush.ts'
import { int8Array } from '../postgres/binary-array.ts'
import type { PinnedConnection } from '../postgres/pinned-connection.ts'
import { secretOrNull } from '../secret.ts'
import { type ContentRow, loadContents } from './backlog.ts'
import { Batcher } from './batcher.ts'
import type { Content } from './messages.ts'

/** Deliveries of an endpoint whose contents are read before their turn, as many as it may have in flight. */
const READ_AHEAD = 16
/** A content that was read earlier is read again, so that an erasure or an unsend meanwhile counts. */
const CONTENT_MAX_AGE_MS = 20

export interface ReadDelivery extends LeasedDelivery {
  /** The content read ahead, and when. */
  content: Promise<ContentRow | undefined> | null
  readAtMs: number
}

export class Contents {
  readonly #connection: PinnedConnection
  readonly #batches = new Batcher<LeasedDelivery, ContentRow>((deliveries) => this.#load(deliveries))

  constructor(connection: PinnedConnection) {
    this.#connection = connection
  }

  /** Reads the first of those that wait, so that a request need not wait for the database. */
  readAhead(waiting: ReadDelivery[]): void {
    for (const delivery of waiting.slice(0, READ_AHEAD)) {
      if (delivery.content !== null) continue
      delivery.content = this.#batches.load(delivery)
      delivery.readAtMs = performance.now()
      // Its attempt reads it again, and meets the failure then.
      delivery.content.catch(() => undefined)
    }
  }

  /** Undefined: the delivery no longer exists. */
  read(delivery: ReadDelivery): Promise<ContentRow | undefined> {
    const isFresh = performance.now() - delivery.readAtMs <= CONTENT_MAX_AGE_MS
    return delivery.content !== null && isFresh ? delivery.content : this.readAgain(delivery)
  }

  readAgain(delivery: LeasedDelivery): Promise<ContentRow | undefined> {
    return this.#batches.load(delivery)
  }

  async #load(deliveries: LeasedDelivery[]): Promise<Array<ContentRow | undefined>> {
    const values = [
      int8Array(deliveries.map(({ accountId }) => accountId)),
      int8Array(deliveries.map(({ id }) => id)),
    ]
    const [rows] = await this.#connection.pipelineIdempotent([{ statement: loadContents, values }])
    const byId = new Map((rows as ContentRow[]).map((row) => [row.id, row]))
    return deliveries.map(({ id }) => byId.get(id))
  }
}

export function contentOf(row: ContentRow): Content {
  if (row.format === 'line') {
    return {
      format: 'line',
      destination: row.destination,
      events: row.events,
      channelSecret: secretOrNull(row.channel_secret),
      replies: row.replies,
      isRetry: row.attempts > 1,
    }
  }
  return {
    format: 'members',
    // With the time: after a restore, numbers are given again, and receivers ignore a message whose id they have seen.
    id: `msg_${row.id}_${row.change ?? 0}_${row.created_ms}`,
    type: row.type ?? '',
    data: row.data,
    secret: secretOrNull(row.secret),
    previousSecret: secretOrNull(row.previous_secret),
  }
}
