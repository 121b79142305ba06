/** GET /api/audience as a stream of all matches, read page by page at the pace of the client. */
import { finished, Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import Negotiator from 'negotiator'
import type { Scope } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { describeFault } from '../http/error-envelope.ts'
import { recordAbort } from '../http/responses.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { Filters } from './filters.ts'
import { CSV_HEADER } from './member.ts'
import { type Beginning, type Page, readPage } from './select-list.ts'

/** Members per page: about 0.5 MiB of text, or 16 MiB if all have the largest attributes. A stream holds two pages. */
const PAGE_MEMBERS = 1_000
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

export interface StreamFormat {
  mediaType: string
  shape: 'ndjson' | 'csv'
  header: string
  /** RFC 4180 ends a line with CR LF. */
  lineEnd: string
}

export const NDJSON: StreamFormat = {
  mediaType: 'application/x-ndjson',
  shape: 'ndjson',
  header: '',
  lineEnd: '\n',
}
export const CSV: StreamFormat = {
  mediaType: 'text/csv',
  shape: 'csv',
  header: `${CSV_HEADER}\r\n`,
  lineEnd: '\r\n',
}

const FORMATS = new Map([NDJSON, CSV].map((format) => [format.mediaType, format]))

/** Returns the format that an Accept header prefers. Null: a page of JSON, also if the header accepts none of the formats. */
export function streamFormatOf(accept: string | undefined): StreamFormat | null {
  if (accept === undefined) return null
  const [best] = new Negotiator({ headers: { accept } }).mediaTypes(['application/json', ...FORMATS.keys()])
  return FORMATS.get(best ?? '') ?? null
}

/**
 * Yields all matches as text, page by page. The next page is read while this one is used. Each page is a separate statement, so a
 * slow reader holds no snapshot. Returning early waits for the statement in flight.
 */
export async function* memberLines(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  beginning: Beginning,
  { shape, header, lineEnd }: StreamFormat,
): AsyncGenerator<{ text: string; count: number }> {
  const read = (position: Beginning) => readPage(database, scope, filters, position, PAGE_MEMBERS, shape)
  let ahead: Promise<Page> | null = read(beginning)
  let start = header
  try {
    while (ahead !== null) {
      const { lines, members, next }: Page = await ahead
      ahead = next && read(next)
      // An error of the next page is thrown when it is awaited, unless the reader has stopped by then.
      ahead?.catch(() => undefined)
      yield { text: start + lines + (members > 0 ? lineEnd : ''), count: members }
      start = ''
    }
  } finally {
    await ahead?.catch(() => undefined)
  }
}

/** Sends streams: one per API key or operator, and STREAMS_MAX in total. */
export class Streamer {
  readonly #reads: () => Queryable
  readonly #open = new Set<bigint | string | null>()

  constructor(reads: () => Queryable) {
    this.#reads = reads
  }

  /**
   * Throws like a page until the first byte is sent. After a later error, the connection is closed before the last chunk, so that the
   * stream does not look complete.
   */
  async send(
    reply: FastifyReply,
    scope: Scope,
    filters: Filters,
    beginning: Beginning,
    format: StreamFormat,
    reader: bigint | string | null = scope.keyId,
  ): Promise<FastifyReply> {
    refuseHttp10(reply)
    this.#take(reader)
    const lines = memberLines(this.#reads(), scope, filters, beginning, format)
    const slow = setTimeout(() => {
      recordAbort(reply.raw, 408)
      reply.raw.destroy()
    }, PIECE_MAX_MS)
    // Also runs if the client disconnected before the response began.
    finished(reply.raw, () => {
      clearTimeout(slow)
      // The reader is free again when the statement in flight has ended.
      const free = () => void this.#open.delete(reader)
      lines.return(undefined).then(free, free)
    })
    const first = await lines.next()
    return reply
      .type(`${format.mediaType}; charset=utf-8`)
      .send(Readable.from(pieces(reply, first, lines, slow), { objectMode: false, highWaterMark: 1 }))
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

type Lines = ReturnType<typeof memberLines>

/** Yields the bytes of a stream at the pace of the client. */
async function* pieces(
  reply: FastifyReply,
  first: Awaited<ReturnType<Lines['next']>>,
  lines: Lines,
  slow: NodeJS.Timeout,
): AsyncGenerator<Buffer> {
  try {
    for (let next = first; !next.done && !reply.raw.destroyed; next = await lines.next()) {
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
