/** Events that could not be applied: list, reasons, retry. */
import type { FastifyInstance } from 'fastify'
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

  // Retries one batch. The page sends the position of the next one until there is none.
  api.post('/events/retry', async (request) => {
    const { account, failure = null, after } = checkRetry(parseUtf8Json(bodyBytes(request)))
    const position = after && { accountId: BigInt(after.accountId), id: BigInt(after.id) }
    return retryNextEvents(database, { accountId: idOrNull(account), failure }, position ?? null, RETRY_BATCH)
  })
}
