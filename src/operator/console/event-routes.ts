/** Events: those that could not be applied, with reasons and retry, and the export of all. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { NDJSON } from '../../audience/list.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, StorableText } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import {
  countUnapplied,
  findEvent,
  findFailedEventIds,
  listFailureReasons,
  listUnappliedEvents,
  recordRetry,
  retryEvents,
} from '../events.ts'
import {
  EXPORT_SOURCES,
  eventLines,
  findExportEnd,
  readRange,
  recordEventExport,
} from '../exports/export-events.ts'
import { startEventRetry } from '../jobs/retry-events.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { sendDownload } from './send-download.ts'
import { sendJob } from './send-job.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

const filter = {
  account: Type.Optional(Id),
  failure: Type.Optional(StorableText({ minLength: 1, maxLength: 4_000 })),
}
const checkList = checker(
  Type.Object({ ...filter, before: Type.Optional(Id) }, { additionalProperties: false }),
)
const checkReasons = checker(Type.Object({ account: Type.Optional(Id) }, { additionalProperties: false }))
const checkRetry = checker(Type.Object(filter, { additionalProperties: false }))

const checkExport = checker(
  Type.Object(
    {
      from: Type.String(),
      to: Type.Optional(Type.String()),
      after: Type.Optional(Type.String()),
      source: Type.Optional(Type.Enum([...EXPORT_SOURCES])),
    },
    { additionalProperties: false },
  ),
)

export function eventRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads } = parts
  exportRoute(api, parts)
  const eventOf = async (request: FastifyRequest<{ Params: { id: string } }>) =>
    findEvent(database, operatorOf(request).organizationIds, requireId(request.params.id))

  api.get('/events', VIEWER, async (request) => {
    const { account, failure = null, before } = checkList(request.query)
    const beforeId = idOrNull(before)
    const page = { limit: READ_LIMIT, ...(beforeId === null ? {} : { beforeId }) }
    const events = await listUnappliedEvents(
      reads,
      operatorOf(request).organizationIds,
      { accountId: idOrNull(account), failure },
      page,
    )
    const { items, next } = pageOf(events)
    return { events: items, next }
  })

  api.get('/events/reasons', VIEWER, async (request) => ({
    reasons: await listFailureReasons(
      reads,
      operatorOf(request).organizationIds,
      idOrNull(checkReasons(request.query).account),
    ),
  }))

  api.get<{ Params: { id: string } }>('/events/:id', VIEWER, async (request) => ({
    event: await eventOf(request),
  }))

  api.post<{ Params: { id: string } }>('/events/:id/retry', MANAGER, async (request) => {
    const { id, accountId } = await eventOf(request)
    const operator = operatorOf(request)
    const account = await findAccountDetails(database, operator.organizationIds, accountId)
    const failed = await findFailedEventIds(database, [id])
    if (failed.length > 0) await recordRetry(database, operator, failed, account)
    const [retried] = await retryEvents(database, failed)
    return found(retried)
  })

  api.post('/events/retry', MANAGER, async (request, reply) => {
    const { account, failure = null } = checkRetry(parseUtf8Json(bodyBytes(request)))
    const operator = operatorOf(request)
    const { organizationIds } = operator
    const accountId = idOrNull(account)
    const { organizationId } =
      accountId === null ? ALL : await findAccountDetails(database, organizationIds, accountId)
    const matching = { accountId, failure }
    const total = await countUnapplied(database, organizationIds, matching)
    return sendJob(request, reply, parts, (transaction) =>
      startEventRetry(transaction, operator, matching, { accountId, organizationId, total }),
    )
  })
}

function exportRoute(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, readsFromNow } = parts
  type OfAccount = { Params: { account: string } }
  api.get<OfAccount>('/accounts/:account/events/export', VIEWER, async (request, reply) => {
    const operator = operatorOf(request)
    const accountId = requireId(request.params.account)
    const account = await findAccountDetails(database, operator.organizationIds, accountId)
    const range = readRange(checkExport(request.query), await findExportEnd(database))
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `events-${accountId}.ndjson`,
      mediaType: NDJSON.mediaType,
      record: () => recordEventExport(database, operator, account, range),
      read: () => eventLines(readsFromNow(), accountId, range),
    })
  })
}

/** Events of several organizations. */
const ALL = { organizationId: null }
