/** The audience of an account: search, one member with its timeline, erasure. */
import type { FastifyInstance } from 'fastify'
import { erasePerson } from '../../audience/erase.ts'
import { checkFilters, filterParameters, toFilters } from '../../audience/filters.ts'
import { USER_ID_MAX_LENGTH } from '../../audience/member.ts'
import { parsePathId } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { checker, refuseInput } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts.ts'
import { findMember, memberTimeline, searchMembers, type TimelinePosition } from '../members.ts'
import type { ConsoleParts } from './parts.ts'
import { found, PAGE_SIZE, requireId } from './parts.ts'

const { updatedSince: _, ...searchParameters } = filterParameters
const checkSearch = checker(
  Type.Object({ ...searchParameters, cursor: Type.Optional(Type.String()) }, { additionalProperties: false }),
)
const checkTimeline = checker(
  Type.Object({ cursor: Type.Optional(Type.String()) }, { additionalProperties: false }),
)

type Of<Names extends string> = { Params: Record<Names, string> }

export function audienceRoutes(api: FastifyInstance, { database, reads, now }: ConsoleParts): void {
  api.get<Of<'account'>>('/accounts/:account/members', async ({ params, query }, reply) => {
    const account = found(await findAccountDetails(database, requireId(params.account)))
    const { cursor = null, ...parameters } = checkSearch(query)
    const filters = toFilters(checkFilters(parameters))
    const { lines, nextCursor } = await searchMembers(reads, account, filters, cursor, PAGE_SIZE)
    // PostgreSQL wrote the members as JSON text.
    return reply
      .type('application/json; charset=utf-8')
      .serializer((text: string) => text)
      .send(`{"data":[${lines}],"nextCursor":${JSON.stringify(nextCursor)}}`)
  })

  const memberOf = async ({ account, user }: Of<'account' | 'user'>['Params']) => {
    const text = user.slice(0, USER_ID_MAX_LENGTH)
    return found(await findMember(reads, requireId(account), text, parsePathId(text)))
  }

  api.get<Of<'account' | 'user'>>('/accounts/:account/members/:user', async ({ params }) => ({
    member: await memberOf(params),
  }))

  api.get<Of<'account' | 'user'>>('/accounts/:account/members/:user/timeline', async ({ params, query }) => {
    const { cursor } = checkTimeline(query)
    const after = cursor === undefined ? null : readPosition(cursor)
    const member = await memberOf(params)
    const { entries, next } = await memberTimeline(reads, requireId(params.account), member, PAGE_SIZE, after)
    return { entries, nextCursor: next && `${next.atUs}.${next.part}.${next.id}` }
  })

  api.post<Of<'account' | 'id'>>('/accounts/:account/members/:id/erase', async ({ params }, reply) => {
    const { id: accountId, organizationId } = found(
      await findAccountDetails(database, requireId(params.account)),
    )
    const scope = { keyId: null, accountId, organizationId }
    const isErased = await erasePerson(database, scope, requireId(params.id), now, null)
    return reply.code(found(isErased || null) ? 204 : 404).send()
  })
}

function readPosition(cursor: string): TimelinePosition {
  const [, atUs, part, id] = /^(-?\d{1,18})\.([12])\.(\d{1,18})$/.exec(cursor) ?? []
  if (atUs === undefined || part === undefined || id === undefined)
    refuseInput('cursor', 'is not a cursor of a timeline')
  return { atUs: BigInt(atUs), part: Number(part), id: BigInt(id) }
}
