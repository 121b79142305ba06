/** GET /api/audience: a page of the scope's members, oldest first. */
import type { FastifyInstance, onRequestAsyncHookHandler } from 'fastify'
import Type from 'typebox'
import { findScope, type Scope } from '../access/scope.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { checker, refuseInput, StorableText } from '../http/validate.ts'
import type { Database, Statement } from '../postgres/database.ts'
import { memberJson, USER_ID_MAX_LENGTH, withTrackedActivity } from './member.ts'
import { decodeCursor, encodeCursor } from './page-cursor.ts'

const LIMIT_DEFAULT = 50
/** Members a page: about 100 KiB of JSON. */
const LIMIT_MAX = 200

const checkQuery = checker(
  Type.Object(
    {
      limit: Type.Optional(Type.String()),
      cursor: Type.Optional(Type.String()),
      userId: Type.Optional(StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH })),
    },
    { additionalProperties: false },
  ),
)

interface PageRequest {
  limit: number
  afterId: bigint
  filters: { userId?: string }
}

interface Page {
  /** JSON text of each member */
  members: string[]
  /** the id of the last one, if more follow */
  nextAfterId: bigint | null
}

export function listRoute(
  app: FastifyInstance,
  database: Database | null,
  guard: onRequestAsyncHookHandler,
): void {
  app.get('/api/audience', { onRequest: guard }, async (request, reply) => {
    const scope = await findScope(database, request.caller)
    reply.type('application/json; charset=utf-8')
    if (scope === null || database === null) return reply.send('null')
    const pageRequest = readQuery(scope, request.query)
    const page = await listMembers(database, scope, pageRequest)
    const walk = { scope, filters: pageRequest.filters }
    const nextCursor = page.nextAfterId === null ? null : encodeCursor(walk, page.nextAfterId)
    return reply.send(`{"data":[${page.members.join(',')}],"nextCursor":${JSON.stringify(nextCursor)}}`)
  })
}

function readQuery(scope: Scope, query: unknown): PageRequest {
  const { limit, cursor, ...filters } = checkQuery(query)
  const size = limit === undefined ? LIMIT_DEFAULT : Number(/^\d{1,3}$/.test(limit) ? limit : Number.NaN)
  if (!(size >= 1 && size <= LIMIT_MAX)) refuseInput('limit', `must be a whole number from 1 to ${LIMIT_MAX}`)
  const afterId = cursor === undefined ? INT64_MIN : decodeCursor({ scope, filters }, cursor)
  if (afterId === null)
    refuseInput('cursor', 'is not a cursor of this query: repeat the filters it began with')
  return { limit: size, afterId, filters }
}

const selectPage: Statement = {
  name: 'audience-page',
  text: `
    select m.id, ${memberJson} as json
      from audience_member m ${withTrackedActivity}
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3
     order by m.id
     limit $4`,
}

const selectByUser: Statement = {
  name: 'audience-by-user',
  text: `
    select m.id, ${memberJson} as json
      from audience_member m ${withTrackedActivity}
     where m.channel_oa_id = $1 and m.organization_id = $2 and m.id > $3 and m.user_id = $5
     order by m.id
     limit $4`,
}

async function listMembers(
  database: Database,
  scope: Scope,
  { limit, afterId, filters }: PageRequest,
): Promise<Page> {
  // One more than asked for tells whether another page follows.
  const values = [scope.channelOaId, scope.organizationId, afterId, limit + 1]
  const rows =
    filters.userId === undefined
      ? await database.query<{ id: bigint; json: string }>(selectPage, values)
      : await database.query<{ id: bigint; json: string }>(selectByUser, [...values, filters.userId])
  const page = rows.slice(0, limit)
  return {
    members: page.map(({ json }) => json),
    nextAfterId: rows.length > limit ? (page.at(-1)?.id ?? null) : null,
  }
}
