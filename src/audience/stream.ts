/** GET /api/audience as a stream of all matches, read page by page at the pace of the client. */
import Negotiator from 'negotiator'
import type { Scope } from '../access/scope.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { Filters } from './filters.ts'
import { CSV_HEADER } from './member.ts'
import { type Beginning, type Page, readPage } from './select-list.ts'

/** Members per page: about 0.5 MiB of text, or 16 MiB if all have the largest attributes. A stream holds two pages. */
const PAGE_MEMBERS = 1_000

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
