/** GET /api/audience: a page of the scope's members, oldest first, or the changes since `updatedSince`. */
import type { FastifyInstance, FastifyRequest, onRequestAsyncHookHandler } from 'fastify'
import { clientOf, requireScopeAgain, type Scope, scopeOf } from '../access/scope.ts'
import { acceptedAgeMs } from '../http/if-match.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { ownerShare, type Reader, readerShare, Streamer } from '../http/streamer.ts'
import { Type } from '../http/typebox.ts'
import { checker, refuseInput } from '../http/validate.ts'
import type { Database } from '../postgres/database.ts'
import { checkFilters, type Filters, filterParameters, toFilters } from './filters.ts'
import { decodeCursor, encodeCursor } from './page-cursor.ts'
import { listSchema } from './route-schemas.ts'
import { type Beginning, readPage } from './select-list.ts'
import { memberLines, streamFormatOf } from './stream.ts'

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
    if (format !== null) {
      refusePaging(request.query)
      const filters = toFilters(checkFilters(request.query))
      return streamer.send(reply, format.mediaType, readerOf(request, scope), () =>
        memberLines(database.reads.streams(), scope, filters, beginningOf(filters), format),
      )
    }
    const { limit, position, filters } = readPageQuery(scope, request.query)
    const ageMs = acceptedAgeMs(request)
    const source =
      ageMs === 0 ? database.forTenant(scope) : database.reads.forTenant(scope, performance.now() - ageMs)
    const { lines, next } = await readPage(source, scope, filters, position, limit, 'page')
    const nextCursor = next && encodeCursor({ scope, filters }, next)
    return reply
      .type('application/json; charset=utf-8')
      .send(`{"data":[${lines}],"nextCursor":${JSON.stringify(nextCursor)}}`)
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

function readPageQuery(
  scope: Scope,
  query: unknown,
): { limit: number; position: Beginning; filters: Filters } {
  const { limit, cursor, ...parameters } = checkPageQuery(query)
  const filters = toFilters(parameters)
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
