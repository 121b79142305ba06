/** The log of who changed what: the whole log for owners, and that of one object for everybody who sees it. */
import type { FastifyInstance } from 'fastify'
import { FILE_FORMATS } from '../audience/list-route.ts'
import { AppError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import type { TextParts } from '../http/streamer.ts'
import { timeOrNull } from '../http/times.ts'
import { Type } from '../http/typebox.ts'
import { toJson } from '../ids.ts'
import { includesRole } from '../operators/actor.ts'
import { ALL_ACTIVITY, exportActivity, listActivity, listActivityOf } from '../operators/list-activity.ts'
import {
  type ConsoleParts,
  checkFields,
  Id,
  idOrNull,
  pageOf,
  READ_LIMIT,
  requireId,
  ShortText,
} from './parts.ts'
import { OWNER, operatorOf, sendDownload, VIEWER } from './session.ts'

const filter = {
  operator: Type.Optional(Id),
  account: Type.Optional(Id),
  action: Type.Optional(ShortText),
  from: Type.Optional(ShortText),
  to: Type.Optional(ShortText),
}
const checkList = checkFields({ ...filter, before: Type.Optional(Id) })
const checkExport = checkFields(filter)
const KINDS = ['organization', 'account', 'endpoint', 'client', 'key', 'member', 'operator'] as const
const checkObject = checkFields({
  kind: Type.Enum([...KINDS, 'notification_channel', 'job']),
  id: Id,
  account: Type.Optional(Id),
  before: Type.Optional(Id),
})

type Given = ReturnType<typeof checkExport>

const filterOf = ({ operator, account, ...given }: Given) => ({
  operatorId: idOrNull(operator),
  accountId: idOrNull(account),
  action: given.action ?? null,
  from: timeOrNull('from', given.from),
  to: timeOrNull('to', given.to),
})

export function activityRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { reads } = parts
  const pageBefore = (before: string | undefined) => ({
    beforeId: idOrNull(before) ?? INT64_MAX,
    limit: READ_LIMIT,
  })

  api.get('/activity', OWNER, async (request) => {
    const { before, ...given } = checkList(request.query)
    const { organizationIds } = operatorOf(request)
    const rows = await listActivity(reads, organizationIds, filterOf(given), pageBefore(before))
    const { items, next } = pageOf(rows)
    return { activity: items, next }
  })

  api.get('/activity/export', OWNER, async (request, reply) => {
    const filter = filterOf(checkExport(request.query))
    const { organizationIds } = operatorOf(request)
    return sendDownload(reply, parts, {
      organizationIds,
      fileName: 'activity.ndjson',
      mediaType: FILE_FORMATS.ndjson.mediaType,
      read: () => activityLines(reads, organizationIds, filter),
    })
  })

  api.get('/activity/of', VIEWER, async (request) => {
    const { kind, id, account, before } = checkObject(request.query)
    const of = { kind, id: requireId(id), accountId: idOrNull(account) }
    const { organizationIds, role } = operatorOf(request)
    // Only owners see operators.
    if (kind === 'operator' && !includesRole(role, 'owner')) throw new AppError('forbidden')
    const page = pageBefore(before)
    // The page of an account also shows what was done with its endpoints, keys and members.
    const rows =
      kind === 'account'
        ? await listActivity(reads, organizationIds, { ...ALL_ACTIVITY, accountId: of.id }, page)
        : await listActivityOf(reads, organizationIds, of, page)
    const { items, next } = pageOf(rows)
    return { activity: items, next }
  })
}

async function* activityLines(...exported: Parameters<typeof exportActivity>): TextParts {
  for await (const rows of exportActivity(...exported))
    yield { text: rows.map((row) => `${toJson(row)}\n`).join('') }
}
