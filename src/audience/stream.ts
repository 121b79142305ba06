/** GET /api/audience as a stream: every match, from one snapshot, as fast as the client reads. */
import { finished, Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import Negotiator from 'negotiator'
import type { Scope } from '../access/scope.ts'
import { AppError } from '../errors.ts'
import { recordAbort } from '../http/answers.ts'
import { describeFault } from '../http/error-envelope.ts'
import type { Database } from '../postgres/database.ts'
import type { Filters } from './filters.ts'
import { CSV_HEADER } from './member.ts'
import { type Beginning, nextOf, type PageRow, selectPage, selectStream } from './select-list.ts'

/** Members per read: about 0.5 MiB of text, or 16 MiB if all have the largest attributes. */
const BATCH_MEMBERS = 1_000
/** Bytes that a client must read within STALL_MAX_MS. */
const PIECE_BYTES = 64 * 1024
/** Concurrent streams per instance. Each has a database connection of its own, beside the pool. */
const STREAMS_MAX = 4
const RETRY_AFTER_SECONDS = 10
/** A client that reads less than a piece in this time is disconnected: its snapshot keeps VACUUM from freeing rows. */
const STALL_MAX_MS = 60_000

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

/** The format that an Accept header prefers. Null: a page of JSON, also if the header accepts none of the three. */
export function streamFormatOf(accept: string | undefined): StreamFormat | null {
  if (accept === undefined) return null
  const [best] = new Negotiator({ headers: { accept } }).mediaTypes(['application/json', ...FORMATS.keys()])
  return FORMATS.get(best ?? '') ?? null
}

/** Every match as text, one batch of lines at a time. Aborting the signal ends the query immediately. */
export async function* memberLines(
  database: Database,
  scope: Scope,
  filters: Filters,
  beginning: Beginning,
  { shape, header, lineEnd }: StreamFormat,
  signal: AbortSignal,
): AsyncGenerator<{ text: string; count: number }> {
  const matches = beginning.kind === 'id' ? matchingLines : changedLines
  let start = header
  for await (const { lines, count } of matches(
    database,
    scope,
    filters,
    beginning,
    { shape, lineEnd },
    signal,
  )) {
    yield { text: start + lines + lineEnd, count }
    start = ''
  }
  if (start !== '') yield { text: start, count: 0 }
}

type Lines = AsyncGenerator<{ lines: string; count: number }>
type LineFormat = Pick<StreamFormat, 'shape' | 'lineEnd'>

async function* matchingLines(
  database: Database,
  scope: Scope,
  filters: Filters,
  beginning: Beginning,
  { shape, lineEnd }: LineFormat,
  signal: AbortSignal,
): Lines {
  const bound = selectStream(scope, filters, beginning, shape)
  for await (const lines of database.stream(bound, 'line', BATCH_MEMBERS, signal)) {
    yield { lines: lines.join(lineEnd), count: lines.length }
  }
}

/** A delta feed needs no snapshot: it is read page by page, and ends where it stood when it began. */
async function* changedLines(
  database: Database,
  scope: Scope,
  filters: Filters,
  beginning: Beginning,
  { shape }: LineFormat,
  signal: AbortSignal,
): Lines {
  let position: Beginning | null = beginning
  while (position !== null && !signal.aborted) {
    const { statement, values } = selectPage(scope, filters, position, BATCH_MEMBERS, shape)
    const [page] = await database.query<PageRow>(statement, values)
    if (page?.lines) yield { lines: page.lines, count: page.members ?? 0 }
    position = page ? nextOf(page) : null
  }
}

/** Answers with streams, up to STREAMS_MAX concurrently. */
export class Streamer {
  readonly #database: Database
  #streams = 0

  constructor(database: Database) {
    this.#database = database
  }

  /**
   * Throws like a page until the first byte is sent. A later fault closes the connection before the last chunk, so that the
   * stream cannot look complete.
   */
  async answer(
    reply: FastifyReply,
    scope: Scope,
    filters: Filters,
    beginning: Beginning,
    format: StreamFormat,
  ): Promise<FastifyReply> {
    if (reply.request.raw.httpVersion === '1.0') {
      throw new AppError('bad_request', {
        message:
          'A stream needs HTTP/1.1, because in 1.0 an interruption looks like the end (nginx: proxy_http_version 1.1)',
      })
    }
    if (this.#streams >= STREAMS_MAX) {
      throw new AppError('unavailable', {
        message: `More than ${STREAMS_MAX} concurrent streams; try again later`,
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      })
    }
    this.#streams += 1
    const over = new AbortController()
    // Runs once however the response ends, also for a client that disconnected before it began.
    finished(reply.raw, () => {
      this.#streams -= 1
      over.abort()
    })
    const lines = memberLines(this.#database, scope, filters, beginning, format, over.signal)
    const first = await lines.next()
    const pieces = async function* () {
      const stalled = setTimeout(() => {
        recordAbort(reply.raw, 408)
        reply.raw.destroy()
      }, STALL_MAX_MS)
      try {
        for (let next = first; !next.done; next = await lines.next()) {
          const bytes = Buffer.from(next.value.text)
          for (let start = 0; start < bytes.length; start += PIECE_BYTES) {
            stalled.refresh()
            yield bytes.subarray(start, start + PIECE_BYTES)
          }
        }
      } catch (error) {
        if (!over.signal.aborted) {
          recordAbort(reply.raw, 500)
          const fault = describeFault(error as Error, false)
          reply.log.warn({ requestId: reply.request.id, ...fault }, 'a stream was cut off')
        }
        // Not the database's message, which may quote data.
        throw new Error('the stream was cut off')
      } finally {
        clearTimeout(stalled)
      }
    }
    return reply
      .type(`${format.mediaType}; charset=utf-8`)
      .send(Readable.from(pieces(), { objectMode: false, highWaterMark: 1 }))
  }
}
