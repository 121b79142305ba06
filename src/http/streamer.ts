/** Streams of text, whose parts are read from the database at the pace of the client. */
import { finished, Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { AppError } from '../errors.ts'
import { describeFault, isRefusal } from './error-envelope.ts'
import { recordAbort } from './responses.ts'
import { type Share, Shares } from './shares.ts'

/** Concurrent streams per instance. Each has its own database connection in addition to the pool. */
const STREAMS_MAX = 4
/** Half, so that no client and no organization keeps all others out. */
const STREAMS_PER_OWNER_MAX = 2
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

export interface Reader {
  /** what the stream counts against, besides all streams */
  shares: Share[]
  /** Throws once the reader must not read any more. */
  check: () => Promise<void>
}

/** The share of an API key or operator, which may have one stream at a time. */
export const readerShare = (key: string): Share => ({
  key,
  max: 1,
  refusal: () => new AppError('stream_open', { retryAfterSeconds: RETRY_AFTER_SECONDS }),
})

export const ownerShare = (owner: 'client' | 'organization', id: bigint): Share => ({
  key: `${owner} ${id}`,
  max: STREAMS_PER_OWNER_MAX,
  refusal: () =>
    new AppError('stream_open', {
      message: `Two streams of this ${owner} are open; try again later`,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    }),
})

const ALL_STREAMS: Share = {
  key: 'all',
  max: STREAMS_MAX,
  refusal: () =>
    new AppError('unavailable', {
      message: `More than ${STREAMS_MAX} concurrent streams; try again later`,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    }),
}

export class Streamer {
  readonly #shares = new Shares()

  /**
   * Throws like a page until the first byte is sent. After a later error, the connection is closed before the last chunk, so that the
   * stream does not look complete. The reader is checked before each piece, because a stream lasts longer than the check of its
   * request.
   */
  async send(
    reply: FastifyReply,
    mediaType: string,
    reader: Reader,
    begin: () => TextParts,
  ): Promise<FastifyReply> {
    refuseHttp10(reply)
    const end = this.#shares.begin([...reader.shares, ALL_STREAMS])
    const parts = begin()
    const slow = setTimeout(() => {
      recordAbort(reply.raw, 408)
      reply.raw.destroy()
    }, PIECE_MAX_MS)
    // Also runs if the client disconnected before the response began.
    finished(reply.raw, () => {
      clearTimeout(slow)
      // The reader is free again when the statement in flight has ended.
      parts.return(undefined).then(end, end)
    })
    const first = await parts.next()
    return reply
      .type(`${mediaType}; charset=utf-8`)
      .send(Readable.from(pieces(reply, reader, first, parts, slow), { objectMode: false, highWaterMark: 1 }))
  }
}

function refuseHttp10({ request }: FastifyReply): void {
  if (request.raw.httpVersion !== '1.0') return
  throw new AppError('bad_request', {
    message:
      'A stream needs HTTP/1.1, because in 1.0 an interruption looks like the end (nginx: proxy_http_version 1.1)',
  })
}

async function* pieces(
  reply: FastifyReply,
  reader: Reader,
  first: Awaited<ReturnType<TextParts['next']>>,
  parts: TextParts,
  slow: NodeJS.Timeout,
): AsyncGenerator<Buffer> {
  let isFirst = true
  try {
    for (let next = first; !next.done && !reply.raw.destroyed; next = await parts.next()) {
      const bytes = Buffer.from(next.value.text)
      for (let start = 0; start < bytes.length; start += PIECE_BYTES) {
        // The part was read before this check, so nothing that was read after a revocation is sent.
        if (!isFirst) await reader.check()
        isFirst = false
        slow.refresh()
        yield bytes.subarray(start, start + PIECE_BYTES)
      }
      slow.refresh()
    }
  } catch (error) {
    if (!reply.raw.destroyed) {
      recordAbort(reply.raw, isRefusal(error) ? error.status : 500)
      const fault = describeFault(error as Error, false)
      reply.log.warn({ requestId: reply.request.id, ...fault }, 'a stream was cut off')
    }
    // The database's message may contain data.
    throw new Error('the stream was cut off')
  }
}
