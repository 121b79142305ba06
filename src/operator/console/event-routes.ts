/** Events that could not be applied: list, reasons, retry. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, StorableText } from '../../http/validate.ts'
import {
  findEvent,
  findFailedEventIds,
  listFailureReasons,
  listUnappliedEvents,
  retryEvents,
  retryNextEvents,
} from '../events.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

/** Events retried per request. 50 events × 5 ms per transaction = 0.25 s. */
const RETRY_BATCH = 50

const filter = {
  account: Type.Optional(Id),
  failure: Type.Optional(StorableText({ minLength: 1, maxLength: 4_000 })),
}
const checkList = checker(
  Type.Object({ ...filter, before: Type.Optional(Id) }, { additionalProperties: false }),
)
const checkReasons = checker(Type.Object({ account: Type.Optional(Id) }, { additionalProperties: false }))
const checkRetry = checker(
  Type.Object(
    { ...filter, after: Type.Optional(Type.Object({ accountId: Id, id: Id })) },
    { additionalProperties: false },
  ),
)

export function eventRoutes(api: FastifyInstance, { database, reads }: ConsoleParts): void {
  const eventOf = async (request: FastifyRequest<{ Params: { id: string } }>) =>
    found(await findEvent(database, operatorOf(request).organizationIds, requireId(request.params.id)))

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
    const { id } = await eventOf(request)
    const failed = await findFailedEventIds(database, [id])
    const [retried] = await retryEvents(database, failed)
    return found(retried)
  })

  // Retries one batch. The page sends the position of the next one until there is none.
  api.post('/events/retry', MANAGER, async (request) => {
    const { account, failure = null, after } = checkRetry(parseUtf8Json(bodyBytes(request)))
    const position = after && { accountId: BigInt(after.accountId), id: BigInt(after.id) }
    return retryNextEvents(database, { accountId: idOrNull(account), failure }, position ?? null, RETRY_BATCH)
  })
}
