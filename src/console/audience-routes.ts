/** The audience of an account: search, one member with its timeline, a person's own data, erasure. */
import type { FastifyInstance, FastifyReply } from 'fastify'
import { scopeOfAccount } from '../accounts/scope.ts'
import {
  findPerson,
  personInAccounts,
  personJson,
  recordPersonExport,
} from '../audience/export/export-person.ts'
import { checkFilters, filterParameters, readFilters } from '../audience/filters.ts'
import { readJsonPage } from '../audience/list-pages.ts'
import {
  accountsOf,
  eraseMember,
  findMember,
  findMemberships,
  MEMBERSHIPS_MAX,
  memberTimeline,
  readTimelinePosition,
  updateMember,
} from '../audience/member-details.ts'
import { checkUpdate } from '../audience/update.ts'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import { startErasures } from '../jobs/erase-members.ts'
import { PAGE_SIZE } from '../operations/operation.ts'
import { sendJob } from './operation-routes.ts'
import { type ConsoleParts, checkFields, found, Id, requireId } from './parts.ts'
import { accountOf, MANAGER, type OfAccount, operatorOf, sendDownload, VIEWER } from './session.ts'

const UserId = StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH })
const { updatedSince: _, ...searchParameters } = filterParameters
const checkSearch = checkFields({ ...searchParameters, cursor: Type.Optional(Type.String()) })
const checkTimeline = checkFields({ cursor: Type.Optional(Type.String()) })

const checkEdit = checkFields({ version: Id, update: Type.Unknown() })

type OfMember<Name extends 'user' | 'id'> = { Params: Record<'account' | Name, string> }

const checkPerson = checkFields({ userId: UserId })
const checkErasure = checkFields({
  userId: UserId,
  accounts: Type.Array(Id, { minItems: 1, maxItems: MEMBERSHIPS_MAX }),
})

export function audienceRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  memberRoutes(api, parts)
  personRoutes(api, parts)
}

function memberRoutes(api: FastifyInstance, { database, erasureLedger, reads, now }: ConsoleParts): void {
  api.get<OfAccount>('/accounts/:account/members', VIEWER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { cursor, ...parameters } = checkSearch(request.query)
    const filters = await readFilters(database, account.id, checkFilters(parameters))
    const { lines, nextCursor } = await readJsonPage(
      reads,
      scopeOfAccount(account),
      filters,
      cursor,
      PAGE_SIZE,
    )
    return sendJson(reply, `{"data":[${lines}],"nextCursor":${JSON.stringify(nextCursor)}}`)
  })

  const memberOf = async (accountId: bigint, { user }: { user: string }) => {
    const text = user.slice(0, USER_ID_MAX_LENGTH)
    return found(await findMember(reads, accountId, text, parsePathId(text)))
  }

  api.get<OfMember<'user'>>('/accounts/:account/members/:user', VIEWER, async (request) => {
    const { id } = await accountOf(database, request)
    return { member: await memberOf(id, request.params) }
  })

  api.get<OfMember<'user'>>('/accounts/:account/members/:user/timeline', VIEWER, async (request) => {
    const { id } = await accountOf(database, request)
    const { cursor } = checkTimeline(request.query)
    const after = cursor === undefined ? null : readTimelinePosition('cursor', cursor)
    const member = await memberOf(id, request.params)
    const { entries, next } = await memberTimeline(reads, id, member, PAGE_SIZE, after)
    return { entries, nextCursor: next }
  })

  // `version` is the one that the form shows, so that two people who edit the same member do not overwrite each other.
  api.post<OfMember<'id'>>('/accounts/:account/members/:id', MANAGER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { version, update } = checkEdit(parseUtf8Json(bodyBytes(request)))
    const { json } = await updateMember(
      database,
      operatorOf(request),
      account,
      requireId(request.params.id),
      checkUpdate(update),
      BigInt(version),
    )
    return sendJson(reply, `{"member":${json}}`)
  })

  api.post<OfMember<'id'>>('/accounts/:account/members/:id/erase', MANAGER, async (request, reply) => {
    const account = await accountOf(database, request)
    const id = requireId(request.params.id)
    const isErased = await eraseMember(database, erasureLedger, operatorOf(request), account, id, now)
    return reply.code(found(isErased || null) ? 204 : 404).send()
  })
}

/** A person by user id, who need not be a member, in one account or in all of which the person is a member. */
function personRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads, readsFromNow } = parts

  api.get<OfAccount>('/accounts/:account/people/memberships', VIEWER, async (request) => {
    const { id, name } = await accountOf(database, request)
    const { userId } = checkPerson(request.query)
    return {
      account: { id, name },
      memberships: await findMemberships(reads, operatorOf(request).organizationIds, userId),
    }
  })

  api.get<OfAccount>('/accounts/:account/people/export', VIEWER, async (request, reply) => {
    const operator = operatorOf(request)
    const account = await accountOf(database, request)
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

  api.get<OfAccount>('/accounts/:account/people/export-all', VIEWER, async (request, reply) => {
    const operator = operatorOf(request)
    const account = await accountOf(database, request)
    const { userId } = checkPerson(request.query)
    const current = readsFromNow()
    const memberships = await findMemberships(current, operator.organizationIds, userId)
    const accounts = accountsOf(account, memberships)
    return sendDownload(reply, parts, {
      organizationIds: [...new Set(accounts.map(({ organizationId }) => organizationId))],
      fileName: 'person.json',
      mediaType: 'application/json',
      read: () =>
        personInAccounts(current, accounts, userId, (person) =>
          recordPersonExport(database, operator, person),
        ),
    })
  })

  // `accounts` are those that the page showed, so nobody is erased from an account that the operator did not confirm.
  api.post<OfAccount>('/accounts/:account/people/erase', MANAGER, async (request, reply) => {
    const operator = operatorOf(request)
    await accountOf(database, request)
    const { userId, accounts } = checkErasure(parseUtf8Json(bodyBytes(request)))
    const memberships = await findMemberships(database, operator.organizationIds, userId)
    const chosen = memberships.filter(({ accountId }) => accounts.includes(String(accountId)))
    if (chosen.length === 0) throw new AppError('unknown_item')
    return sendJob(request, reply, parts, (transaction) => startErasures(transaction, operator, chosen))
  })
}

/** PostgreSQL writes members as JSON text. */
const sendJson = (reply: FastifyReply, json: string) =>
  reply
    .type('application/json; charset=utf-8')
    .serializer((text: string) => text)
    .send(json)
