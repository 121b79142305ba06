/** Streams of text, whose parts are read from the database at the pace of the client. */
import { finished, Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { AppError } from '../errors.ts'
import { describeFault } from './error-envelope.ts'
import { recordAbort } from './responses.ts'

/** Concurrent streams per instance. Each has its own database connection in addition to the pool. */
const STREAMS_MAX = 4
const PIECE_BYTES = 320 * 1024
/**
 * Maximum time for a piece: 320 KiB ÷ 50 s = 6.4 KiB/s. The limit cannot be finer, because a socket accepts bytes again only when a
 * third of its buffer is free. This also ends streams of clients that stop reading.
 */
const PIECE_MAX_MS = 50_000
/** An export of a million members takes about ten seconds. */
const RETRY_AFTER_SECONDS = 10

/** Parts of a stream. Returning early waits for the statement in flight. */
export type TextParts = AsyncGenerator<{ text: string }>

/** Sends streams: one per API key or operator, and STREAMS_MAX in total. */
export class Streamer {
  readonly #open = new Set<bigint | string | null>()

  /**
   * Throws like a page until the first byte is sent. After a later error, the connection is closed before the last chunk, so that the
   * stream does not look complete.
   * @param reader the API key or the operator
   */
  async send(
    reply: FastifyReply,
    mediaType: string,
    reader: bigint | string | null,
    begin: () => TextParts,
  ): Promise<FastifyReply> {
    refuseHttp10(reply)
    this.#take(reader)
    const parts = begin()
    const slow = setTimeout(() => {
      recordAbort(reply.raw, 408)
      reply.raw.destroy()
    }, PIECE_MAX_MS)
    // Also runs if the client disconnected before the response began.
    finished(reply.raw, () => {
      clearTimeout(slow)
      // The reader is free again when the statement in flight has ended.
      const free = () => void this.#open.delete(reader)
      parts.return(undefined).then(free, free)
    })
    const first = await parts.next()
    return reply
      .type(`${mediaType}; charset=utf-8`)
      .send(Readable.from(pieces(reply, first, parts, slow), { objectMode: false, highWaterMark: 1 }))
  }

  #take(reader: bigint | string | null): void {
    if (this.#open.has(reader)) throw new AppError('stream_open', { retryAfterSeconds: RETRY_AFTER_SECONDS })
    if (this.#open.size >= STREAMS_MAX) {
      throw new AppError('unavailable', {
        message: `More than ${STREAMS_MAX} concurrent streams; try again later`,
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      })
    }
    this.#open.add(reader)
  }
}

function refuseHttp10({ request }: FastifyReply): void {
  if (request.raw.httpVersion !== '1.0') return
  throw new AppError('bad_request', {
    message:
      'A stream needs HTTP/1.1, because in 1.0 an interruption looks like the end (nginx: proxy_http_version 1.1)',
  })
}

/** Yields the bytes of a stream at the pace of the client. */
async function* pieces(
  reply: FastifyReply,
  first: Awaited<ReturnType<TextParts['next']>>,
  parts: TextParts,
  slow: NodeJS.Timeout,
): AsyncGenerator<Buffer> {
  try {
    for (let next = first; !next.done && !reply.raw.destroyed; next = await parts.next()) {
      const bytes = Buffer.from(next.value.text)
      for (let start = 0; start < bytes.length; start += PIECE_BYTES) {
        slow.refresh()
        yield bytes.subarray(start, start + PIECE_BYTES)
      }
      slow.refresh()
    }
  } catch (error) {
    if (!reply.raw.destroyed) {
      recordAbort(reply.raw, 500)
      const fault = describeFault(error as Error, false)
      reply.log.warn({ requestId: reply.request.id, ...fault }, 'a stream was cut off')
    }
    // The database's message may contain data.
    throw new Error('the stream was cut off')
  }
}
