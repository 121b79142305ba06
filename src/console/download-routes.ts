/** Downloads, which no operation serves: they are sent part by part, at the pace of the browser, which shows their progress. */
import type { FastifyInstance } from 'fastify'
import { scopeOfAccount } from '../accounts/scope.ts'
import { eventLines, findExportEnd, readRange, recordEventExport } from '../audience/export/export-events.ts'
import {
  findPerson,
  personInAccounts,
  personJson,
  recordPersonExport,
} from '../audience/export/export-person.ts'
import { readFilters } from '../audience/filters.ts'
import { countMatching } from '../audience/list-pages.ts'
import { FILE_FORMATS, memberLines } from '../audience/list-route.ts'
import { accountsOf, findMemberships } from '../audience/member-details.ts'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import type { TextParts } from '../http/streamer.ts'
import { Type } from '../http/typebox.ts'
import { StorableText } from '../http/validate.ts'
import { toJson } from '../ids.ts'
import { publicFilters } from '../jobs/selection.ts'
import { ACTIVITY_FILTER, activityFilter } from '../operations/activity.ts'
import { checkerOf, type InputOf } from '../operations/fields.ts'
import { FILTERS } from '../operations/replays.ts'
import { recordAccount } from '../operators/activity.ts'
import { exportActivity } from '../operators/list-activity.ts'
import { type ConsoleParts, checkFields, found } from './parts.ts'
import { accountOf, type OfAccount, OWNER, operatorOf, sendDownload, VIEWER } from './session.ts'

const checkActivity = checkerOf(ACTIVITY_FILTER) as (query: unknown) => InputOf<typeof ACTIVITY_FILTER>
const checkMembers = checkFields({ ...FILTERS, format: Type.Enum(['csv', 'ndjson', 'line-ids']) })
const checkEvents = checkFields({ from: Type.String(), to: Type.Optional(Type.String()) })
const checkPerson = checkFields({ userId: StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH }) })

export function downloadRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads, readsFromNow, counted } = parts
  api.get('/activity/export', OWNER, async (request, reply) => {
    const filter = activityFilter(checkActivity(request.query))
    const { organizationIds } = operatorOf(request)
    return sendDownload(reply, parts, {
      organizationIds,
      fileName: 'activity.ndjson',
      mediaType: FILE_FORMATS.ndjson.mediaType,
      read: () => activityLines(reads, organizationIds, filter),
    })
  })

  api.get<OfAccount>('/accounts/:account/audience/export', VIEWER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { format, ...given } = checkMembers(request.query)
    const matching = await readFilters(reads, account.id, given)
    const scope = scopeOfAccount(account)
    const members = await counted(operatorOf(request), () => countMatching(reads, scope, matching))
    const changes = { format, members, filters: publicFilters(matching) }
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `members-${account.id}.${format === 'line-ids' ? 'txt' : format}`,
      mediaType: FILE_FORMATS[format].mediaType,
      record: () => recordAccount(database, operatorOf(request), 'members.exported', account, changes),
      read: () => memberLines(reads, scope, matching, format, FILE_FORMATS[format].mark),
    })
  })

  api.get<OfAccount>('/accounts/:account/events/export', VIEWER, async (request, reply) => {
    const account = await accountOf(database, request)
    const range = readRange(checkEvents(request.query), await findExportEnd(database))
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `events-${account.id}.ndjson`,
      mediaType: FILE_FORMATS.ndjson.mediaType,
      record: () => recordEventExport(database, operatorOf(request), account, range),
      read: () => eventLines(readsFromNow(), account.id, range),
    })
  })
  personRoutes(api, parts)
}

/** A person by user id, who need not be a member, in one account or in all of which the person is a member. */
function personRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, readsFromNow } = parts
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
}

async function* activityLines(...exported: Parameters<typeof exportActivity>): TextParts {
  for await (const rows of exportActivity(...exported))
    yield { text: rows.map((row) => `${toJson(row)}\n`).join('') }
}
