/** Outgoing webhooks: endpoints, their deliveries, pause, resume and retry. */
import type { FastifyInstance } from 'fastify'
import {
  beginResumption,
  continueResumption,
  pauseEndpoint,
  retryFailedBatch,
} from '../../endpoints/manage.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { findEndpoint, listEndpoints, pageDeliveries, previewDelivery } from '../endpoints.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, PAGE_SIZE, pageOf, READ_LIMIT, requireId } from './parts.ts'

const checkList = checker(
  Type.Object({ account: Type.Optional(Id), after: Type.Optional(Id) }, { additionalProperties: false }),
)
const checkDeliveries = checker(
  Type.Object(
    {
      status: Type.Union([Type.Literal('pending'), Type.Literal('failed')]),
      dueUs: Type.Optional(Id),
      after: Type.Optional(Id),
    },
    { additionalProperties: false },
  ),
)
const checkResume = checker(
  Type.Object(
    {
      resumedAt: Type.String({ pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z$' }),
      lastId: Id,
    },
    { additionalProperties: false },
  ),
)

type OfId = { Params: { id: string } }

export function endpointRoutes(api: FastifyInstance, { database, now }: ConsoleParts): void {
  api.get('/endpoints', async ({ query }) => {
    const { account, after } = checkList(query)
    const afterId = idOrNull(after)
    const page = { limit: READ_LIMIT, ...(afterId === null ? {} : { afterId }) }
    const endpoints = await listEndpoints(database, idOrNull(account), page)
    const { items, next } = pageOf(endpoints)
    return { endpoints: items, next }
  })

  const endpointOf = async (id: string) => found(await findEndpoint(database, requireId(id)))

  api.get<OfId>('/endpoints/:id', async ({ params }) => ({ endpoint: await endpointOf(params.id) }))

  api.get<OfId>('/endpoints/:id/deliveries', async ({ params, query }) => {
    const { status, dueUs, after } = checkDeliveries(query)
    const id = idOrNull(after)
    const position = id === null ? null : { id, dueUs: BigInt(dueUs ?? 0) }
    return pageDeliveries(database, requireId(params.id), status, position, PAGE_SIZE)
  })

  api.get<{ Params: { id: string; delivery: string } }>(
    '/endpoints/:id/deliveries/:delivery',
    async ({ params }) => {
      const endpoint = await endpointOf(params.id)
      return { request: found(await previewDelivery(database, endpoint, requireId(params.delivery), now())) }
    },
  )

  api.post<OfId>('/endpoints/:id/pause', async ({ params }, reply) => {
    found((await pauseEndpoint(database, requireId(params.id))) || null)
    return reply.code(204).send()
  })

  // Resumes one batch. The page repeats the request with `rest` until it is null.
  api.post<OfId>('/endpoints/:id/resume', async (request) => {
    const id = requireId(request.params.id)
    const body = bodyBytes(request)
    if (body.length === 0) return { rest: found(await beginResumption(database, id)) }
    const { resumedAt, lastId } = checkResume(parseUtf8Json(body))
    return { rest: await continueResumption(database, id, { resumedAt, lastId: BigInt(lastId) }) }
  })

  // Retries one batch. The page repeats the request until the last one.
  api.post<OfId>('/endpoints/:id/retry', async ({ params }) => {
    const { id } = await endpointOf(params.id)
    return retryFailedBatch(database, id)
  })
}
