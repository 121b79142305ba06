/** GET /api/audience: a page of the scope's members, oldest first, or the changes since `updatedSince`. */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import Negotiator from 'negotiator'
import { clientOf, requireScopeAgain, type Scope, scopeOf } from '../accounts/scope.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { ownerShare, type Reader, readerShare, Streamer } from '../http/streamer.ts'
import { Type } from '../http/typebox.ts'
import { acceptedAgeMs, checker, refuseInput } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'
import { checkFilters, type Filters, filterParameters, readFilters } from './filters.ts'
import type { List } from './list-statements.ts'
import { CSV_HEADER } from './member.ts'
import { listSchema } from './route-schemas.ts'
import { type Beginning, decodeCursor, encodeCursor, type Page, readPage } from './select-list.ts'

const LIMIT_DEFAULT = 50
/** About 100 KiB of JSON. */
const LIMIT_MAX = 200

const checkPageQuery = checker(
  Type.Object(
    { ...filterParameters, limit: Type.Optional(Type.String()), cursor: Type.Optional(Type.String()) },
    { additionalProperties: false },
  ),
)

export function listRoute(app: FastifyInstance, database: Database, guard: onRequestAsyncHookHandler): void {
  const streamer = new Streamer()
  const schema = listSchema({ default: LIMIT_DEFAULT, maximum: LIMIT_MAX })
  app.get('/api/audience', { schema, onRequest: guard }, async (request, reply) => {
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
      return streamer.send(reply, format.mediaType, readerOf(request, scope), () =>
        memberLines(database.reads.streams(), scope, filters, format),
      )
    }
    const { limit, position, filters } = await readPageQuery(tenant, scope, request.query)
    const ageMs = acceptedAgeMs(request)
    const source = ageMs === 0 ? tenant : database.reads.forTenant(scope, performance.now() - ageMs)
    const { lines, next } = await readPage(source, scope, filters, position, limit, 'page')
    const nextCursor = next && encodeCursor({ scope, filters }, next)
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

async function readPageQuery(
  tenant: Queryable,
  scope: Scope,
  query: unknown,
): Promise<{ limit: number; position: Beginning; filters: Filters }> {
  const { limit, cursor, ...parameters } = checkPageQuery(query)
  const filters = await readFilters(tenant, scope.accountId, parameters)
  const size = limit === undefined ? LIMIT_DEFAULT : Number(/^\d{1,3}$/.test(limit) ? limit : Number.NaN)
  if (!(size >= 1 && size <= LIMIT_MAX)) refuseInput('limit', `must be a whole number from 1 to ${LIMIT_MAX}`)
  const position = cursor === undefined ? beginningOf(filters) : decodeCursor({ scope, filters }, cursor)
  if (position === null)
    refuseInput('cursor', 'does not belong to this query: repeat the filters of the first page')
  return { limit: size, position, filters }
}

export function beginningOf({ updatedSince }: Filters): Beginning {
  if (updatedSince === undefined) return { kind: 'id', id: INT64_MIN, isCommonName: false }
  return { kind: 'time', ms: Date.parse(updatedSince) }
}

// GET /api/audience as a stream of all matches, read page by page at the pace of the client.

/** Members per page: about 0.5 MiB of text, or 16 MiB if all have the largest attributes. A stream holds two pages. */
const PAGE_MEMBERS = 1_000

interface StreamFormat {
  mediaType: string
  form: Exclude<keyof List, 'page'>
  header: string
  /** RFC 4180 ends a line with CR LF. */
  lineEnd: string
}

export const NDJSON: StreamFormat = {
  mediaType: 'application/x-ndjson',
  form: 'ndjson',
  header: '',
  lineEnd: '\n',
}
const CSV: StreamFormat = {
  mediaType: 'text/csv',
  form: 'csv',
  header: `${CSV_HEADER}\r\n`,
  lineEnd: '\r\n',
}
/** As the upload of LINE's manager takes them. */
const LINE_IDS: StreamFormat = { mediaType: 'text/plain', form: 'lineIds', header: '', lineEnd: '\n' }

/** Of exports by operators. */
export const FILE_FORMATS = { ndjson: NDJSON, csv: CSV, 'line-ids': LINE_IDS }

const FORMATS = new Map([NDJSON, CSV].map((format) => [format.mediaType, format]))

/** Null: a page of JSON, also if the header accepts none of the formats. */
function streamFormatOf(accept: string | undefined): StreamFormat | null {
  if (accept === undefined) return null
  const [best] = new Negotiator({ headers: { accept } }).mediaTypes(['application/json', ...FORMATS.keys()])
  return FORMATS.get(best ?? '') ?? null
}

/** Each page is a separate statement, so a slow reader holds no snapshot. */
export function memberLines(
  database: Queryable,
  scope: Scope,
  filters: Filters,
  { form, header, lineEnd }: StreamFormat,
): AsyncGenerator<{ text: string; count: number }> {
  const readPages = async function* () {
    let start = header
    for (let position: Beginning | null = beginningOf(filters); position !== null; ) {
      const page: Page = await readPage(database, scope, filters, position, PAGE_MEMBERS, form)
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
