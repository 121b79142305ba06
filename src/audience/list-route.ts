/** GET /api/audience: a page of the scope's members, oldest first, or the changes since `updatedSince`. */
import type { FastifyInstance, FastifyRequest, FastifySchema, onRequestAsyncHookHandler } from 'fastify'
import Negotiator from 'negotiator'
import { clientOf, requireScopeAgain, type Scope, scopeOf } from '../accounts/scope.ts'
import { BYTE_ORDER_MARK } from '../http/csv.ts'
import { audienceRoute, CLIENT_FAILURES, failures, reference } from '../http/schema-parts.ts'
import { ownerShare, type Reader, readerShare, Streamer } from '../http/streamer.ts'
import { Type } from '../http/typebox.ts'
import { acceptedAgeMs, checker, Nullable, refuseInput } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'
import { checkFilters, type Filters, filterParameters, readFilters } from './filters.ts'
import { type Beginning, beginningOf, type Page, readJsonPage, readPage } from './list-pages.ts'
import { CSV_HEADER } from './member.ts'

const LIMIT_DEFAULT = 50
/** About 100 KiB of JSON. */
const LIMIT_MAX = 200

const checkPageQuery = checker(
  Type.Object(
    { ...filterParameters, limit: Type.Optional(Type.String()), cursor: Type.Optional(Type.String()) },
    { additionalProperties: false },
  ),
)

const acceptedAge = Type.Object({
  'cache-control': Type.Optional(
    Type.String({
      description:
        '`max-age=N` accepts a page that is up to N seconds old, which a replica may serve. Without it, the page is current.',
    }),
  ),
})

const { relationship, tag, updatedSince, ...texts } = filterParameters
const listParameters = {
  type: 'object',
  properties: {
    ...texts,
    relationship: { ...relationship, description: 'Returns members with this relationship.' },
    tag: { ...tag.anyOf[1], description: 'Returns members that have all of these tags.' },
    updatedSince: {
      ...updatedSince,
      format: 'date-time',
      description:
        'Returns members that changed since this time, oldest change first, and a tombstone for each erased member. ' +
        'A member may be returned again.',
    },
    limit: {
      type: 'integer',
      minimum: 1,
      maximum: LIMIT_MAX,
      default: LIMIT_DEFAULT,
      description: 'Maximum number of members per page.',
    },
    cursor: { type: 'string', description: 'The `nextCursor` of the previous page.' },
  },
}

const listSchema: FastifySchema = {
  ...audienceRoute,
  operationId: 'listAudience',
  summary: 'List members',
  description: `Returns one page of members, oldest first. All filters must match. To read the next page, repeat the request with
the same filters and \`cursor\` set to the \`nextCursor\` of this page. A page may be empty and still have a \`nextCursor\`.

With \`Accept: application/x-ndjson\` or \`text/csv\`, the response streams every match, read page by page. Streams accept neither \`limit\` nor
\`cursor\`, and they need HTTP/1.1.`,
  'x-response-headers': ['Vary'],
  querystring: listParameters,
  headers: acceptedAge,
  response: {
    200: {
      description: `A page of members, or a stream of all matches. The body is null if the API key is not active.
A stream that fails after its first byte is cut off: the connection closes before the last chunk. Earlier failures are error responses.`,
      content: {
        'application/json': { schema: Nullable(reference('Page')) },
        'application/x-ndjson': { schema: reference('MemberLines') },
        'text/csv': { schema: reference('MemberTable') },
      },
    },
    ...failures({
      ...CLIENT_FAILURES,
      400: 'A query parameter is invalid or unknown. `details` identifies it.',
      410: '`updatedSince`, or the first page of the cursor, is from between a backup and its restore. Read the whole audience again.',
      429: 'Too many requests, or other streams of the API key, client or organization are open.',
      503: 'The database is unavailable, or too many streams are open.',
    }),
  },
}

export function listRoute(app: FastifyInstance, database: Database, guard: onRequestAsyncHookHandler): void {
  const streamer = new Streamer()
  app.get('/api/audience', { schema: listSchema, onRequest: guard }, async (request, reply) => {
    const scope = scopeOf(request)
    const format = streamFormatOf(request.headers.accept)
    reply.header('vary', 'accept')
    if (scope === null) {
      return reply.type('application/json; charset=utf-8').send('null')
    }
    const tenant = database.forTenant(scope)
    if (format !== null) {
      refusePaging(request.query)
      const filters = await readFilters(tenant, scope.accountId, checkFilters(request.query))
      return streamer.send(reply, FILE_FORMATS[format].mediaType, readerOf(request, scope), () =>
        memberLines(database.reads.streams(), scope, filters, format),
      )
    }
    const { limit, cursor, ...parameters } = checkPageQuery(request.query)
    const filters = await readFilters(tenant, scope.accountId, parameters)
    const ageMs = acceptedAgeMs(request)
    const source = ageMs === 0 ? tenant : database.reads.forTenant(scope, performance.now() - ageMs)
    const { lines, nextCursor } = await readJsonPage(source, scope, filters, cursor, readLimit(limit))
    // Encoded here, because the socket encodes text at twice the cost: 8 % of the service's time for a page.
    return reply
      .type('application/json; charset=utf-8')
      .send(Buffer.from(`{"data":[${lines}],"nextCursor":${JSON.stringify(nextCursor)}}`))
  })
}

const readerOf = (request: FastifyRequest, scope: Scope): Reader => ({
  shares: [
    readerShare(`key ${scope.keyId}`),
    ownerShare('client', clientOf(request)),
    ownerShare('organization', scope.organizationId),
  ],
  check: () => requireScopeAgain(request, scope),
})

function refusePaging(query: unknown): void {
  for (const name of ['limit', 'cursor']) {
    if (Object.hasOwn(query as object, name))
      refuseInput(name, 'applies to pages: a stream returns every match')
  }
}

function readLimit(text = String(LIMIT_DEFAULT)): number {
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0
  return limit >= 1 && limit <= LIMIT_MAX
    ? limit
    : refuseInput('limit', `must be a whole number from 1 to ${LIMIT_MAX}`)
}

// GET /api/audience as a stream of all matches, read page by page at the pace of the client.

/** Members per page: about 0.5 MiB of text, or 16 MiB if all have the largest attributes. A stream holds two pages. */
const PAGE_MEMBERS = 1_000

/** RFC 4180 ends a line with CR LF. Excel needs the mark to recognize UTF-8. The upload of LINE's manager takes line-ids. */
export const FILE_FORMATS = {
  ndjson: { mediaType: 'application/x-ndjson', mark: '', header: '', lineEnd: '\n' },
  csv: { mediaType: 'text/csv', mark: BYTE_ORDER_MARK, header: `${CSV_HEADER}\r\n`, lineEnd: '\r\n' },
  'line-ids': { mediaType: 'text/plain', mark: '', header: '', lineEnd: '\n' },
}

export type FileFormat = keyof typeof FILE_FORMATS

/** Clients send `text/csv; header=present` and `charset=utf-8`, which change nothing here. A weight does. */
const PARAMETERS = /;(?!\s*q\s*=)[^;,]*/gi

/** Null: a page of JSON, also if the header accepts none of the formats. */
function streamFormatOf(accept: string | undefined): FileFormat | null {
  if (accept === undefined) return null
  const streamed = (['ndjson', 'csv'] as const).map(
    (format) => [FILE_FORMATS[format].mediaType, format] as const,
  )
  const formats = new Map<string, FileFormat>(streamed)
  const [best = ''] = new Negotiator({ headers: { accept: accept.replaceAll(PARAMETERS, '') } }).mediaTypes([
    'application/json',
    ...formats.keys(),
  ])
  return formats.get(best) ?? null
}

/** Each page is a separate statement, so a slow reader holds no snapshot. */
export function memberLines(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  format: FileFormat,
  mark = '',
): AsyncGenerator<{ text: string; count: number }> {
  const { header, lineEnd } = FILE_FORMATS[format]
  const readPages = async function* () {
    let start = mark + header
    for (let position: Beginning | null = beginningOf(filters); position !== null; ) {
      const page: Page = await readPage(database, scope, filters, position, PAGE_MEMBERS, format)
      const { lines, members: count } = page
      yield { text: start + lines + (count > 0 ? lineEnd : ''), count }
      start = ''
      position = page.next
    }
  }
  return readAhead(readPages())
}

/** Reads the next part while this one is used. Returning early waits for the statement in flight. */
export async function* readAhead<Part>(parts: AsyncGenerator<Part, void>): AsyncGenerator<Part> {
  let ahead = parts.next()
  try {
    for (let part = await ahead; part.done !== true; part = await ahead) {
      ahead = parts.next()
      // An error of the next part is thrown when it is awaited, unless the reader has stopped by then.
      ahead.catch(() => undefined)
      yield part.value
    }
  } finally {
    await ahead.catch(() => undefined)
  }
}
