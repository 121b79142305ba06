/** The audience of an account: search, one member with its timeline, a person's own data, erasure. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { checkFilters, filterParameters, toFilters } from '../../audience/filters.ts'
import { USER_ID_MAX_LENGTH } from '../../audience/member.ts'
import { checkUpdate } from '../../audience/update.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { parsePathId } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { checker, refuseInput, StorableText } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import { findPerson, personJson, recordPersonExport } from '../exports/export-person.ts'
import { eraseMember, updateMember } from '../members/manage-members.ts'
import { findMember, memberTimeline, searchMembers, type TimelinePosition } from '../members/members.ts'
import type { ConsoleParts } from './parts.ts'
import { found, PAGE_SIZE, requireId } from './parts.ts'
import { sendDownload } from './send-download.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

const UserId = StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH })
const { updatedSince: _, ...searchParameters } = filterParameters
const checkSearch = checker(
  Type.Object({ ...searchParameters, cursor: Type.Optional(Type.String()) }, { additionalProperties: false }),
)
const checkTimeline = checker(
  Type.Object({ cursor: Type.Optional(Type.String()) }, { additionalProperties: false }),
)

const checkEdit = checker(
  Type.Object(
    { version: Type.String({ pattern: '^\\d{1,19}$' }), update: Type.Unknown() },
    { additionalProperties: false },
  ),
)

type Of<Names extends string> = { Params: Record<Names, string> }

const checkPerson = checker(Type.Object({ userId: UserId }, { additionalProperties: false }))

export function audienceRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, erasureLedger, reads, readsFromNow, now } = parts
  const accountOf = async (request: FastifyRequest<Of<'account'>>) =>
    found(
      await findAccountDetails(
        database,
        operatorOf(request).organizationIds,
        requireId(request.params.account),
      ),
    )

  api.get<Of<'account'>>('/accounts/:account/members', VIEWER, async (request, reply) => {
    const account = await accountOf(request)
    const { cursor = null, ...parameters } = checkSearch(request.query)
    const filters = toFilters(checkFilters(parameters))
    const { lines, nextCursor } = await searchMembers(reads, account, filters, cursor, PAGE_SIZE)
    // PostgreSQL wrote the members as JSON text.
    return reply
      .type('application/json; charset=utf-8')
      .serializer((text: string) => text)
      .send(`{"data":[${lines}],"nextCursor":${JSON.stringify(nextCursor)}}`)
  })

  const memberOf = async (accountId: bigint, { user }: Of<'user'>['Params']) => {
    const text = user.slice(0, USER_ID_MAX_LENGTH)
    return found(await findMember(reads, accountId, text, parsePathId(text)))
  }

  api.get<Of<'account' | 'user'>>('/accounts/:account/members/:user', VIEWER, async (request) => {
    const { id } = await accountOf(request)
    return { member: await memberOf(id, request.params) }
  })

  api.get<Of<'account' | 'user'>>('/accounts/:account/members/:user/timeline', VIEWER, async (request) => {
    const { id } = await accountOf(request)
    const { cursor } = checkTimeline(request.query)
    const after = cursor === undefined ? null : readPosition(cursor)
    const member = await memberOf(id, request.params)
    const { entries, next } = await memberTimeline(reads, id, member, PAGE_SIZE, after)
    return { entries, nextCursor: next && `${next.atUs}.${next.part}.${next.id}` }
  })

  api.get<Of<'account'>>('/accounts/:account/people/export', VIEWER, async (request, reply) => {
    const operator = operatorOf(request)
    const account = await accountOf(request)
    const { userId } = checkPerson(request.query)
    const current = readsFromNow()
    const person = found(await findPerson(current, account, userId))
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `person-${account.id}.json`,
      mediaType: 'application/json',
      record: () => recordPersonExport(database, operator, person),
      read: () => personJson(current, person),
    })
  })

  // `version` is the one that the form shows, so that two people who edit the same member do not overwrite each other.
  api.post<Of<'account' | 'id'>>('/accounts/:account/members/:id', MANAGER, async (request, reply) => {
    const account = await accountOf(request)
    const { version, update } = checkEdit(parseUtf8Json(bodyBytes(request)))
    const { json } = await updateMember(
      database,
      operatorOf(request),
      account,
      requireId(request.params.id),
      checkUpdate(update),
      [BigInt(version)],
    )
    return reply
      .type('application/json; charset=utf-8')
      .serializer((text: string) => text)
      .send(`{"member":${json}}`)
  })

  api.post<Of<'account' | 'id'>>('/accounts/:account/members/:id/erase', MANAGER, async (request, reply) => {
    const account = await accountOf(request)
    const id = requireId(request.params.id)
    const isErased = await eraseMember(database, erasureLedger, operatorOf(request), account, id, now)
    return reply.code(found(isErased || null) ? 204 : 404).send()
  })
}

function readPosition(cursor: string): TimelinePosition {
  const [, atUs, part, id] = /^(-?\d{1,18})\.([12])\.(\d{1,18})$/.exec(cursor) ?? []
  if (atUs === undefined || part === undefined || id === undefined)
    refuseInput('cursor', 'is not a cursor of a timeline')
  return { atUs: BigInt(atUs), part: Number(part), id: BigInt(id) }
}
