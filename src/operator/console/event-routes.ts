/** Events that could not be applied: list, reasons, retry. */
import type { FastifyInstance } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, StorableText } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts.ts'
import {
  countUnapplied,
  findEvent,
  findFailedEventIds,
  listFailureReasons,
  listUnappliedEvents,
  retryEvents,
} from '../events.ts'
import { startEventRetry } from '../jobs/retry-events.ts'
import { operatorOf } from './operator-of.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { sendJob } from './send-job.ts'

const filter = {
  account: Type.Optional(Id),
  failure: Type.Optional(StorableText({ minLength: 1, maxLength: 4_000 })),
}
const checkList = checker(
  Type.Object({ ...filter, before: Type.Optional(Id) }, { additionalProperties: false }),
)
const checkReasons = checker(Type.Object({ account: Type.Optional(Id) }, { additionalProperties: false }))
const checkRetry = checker(Type.Object(filter, { additionalProperties: false }))

export function eventRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads } = parts
  api.get('/events', async ({ query }) => {
    const { account, failure = null, before } = checkList(query)
    const beforeId = idOrNull(before)
    const page = { limit: READ_LIMIT, ...(beforeId === null ? {} : { beforeId }) }
    const events = await listUnappliedEvents(reads, { accountId: idOrNull(account), failure }, page)
    const { items, next } = pageOf(events)
    return { events: items, next }
  })

  api.get('/events/reasons', async ({ query }) => ({
    reasons: await listFailureReasons(reads, idOrNull(checkReasons(query).account)),
  }))

  api.get<{ Params: { id: string } }>('/events/:id', async ({ params }) => ({
    event: found(await findEvent(database, requireId(params.id))),
  }))

  api.post<{ Params: { id: string } }>('/events/:id/retry', async ({ params }) => {
    const failed = await findFailedEventIds(database, [requireId(params.id)])
    const [retried] = await retryEvents(database, failed)
    return found(retried)
  })

  api.post('/events/retry', async (request, reply) => {
    const { account, failure = null } = checkRetry(parseUtf8Json(bodyBytes(request)))
    const operator = operatorOf(request)
    const accountId = idOrNull(account)
    const { organizationId } = accountId === null ? ALL : found(await findAccountDetails(database, accountId))
    const matching = { accountId, failure }
    const total = await countUnapplied(database, operator.organizationIds, matching)
    const owner = { accountId, organizationId, total }
    return sendJob(request, reply, parts, (transaction) =>
      startEventRetry(transaction, operator, matching, owner),
    )
  })
}

/** Events of several organizations. */
const ALL = { organizationId: null }
