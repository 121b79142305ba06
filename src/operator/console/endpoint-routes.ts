/** Outgoing webhooks: endpoints, their deliveries, pause, resume and retry. */
import type { FastifyInstance } from 'fastify'
import { pauseEndpoint } from '../../endpoints/manage.ts'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts.ts'
import { findEndpoint, listEndpoints, pageDeliveries, previewDelivery } from '../endpoints.ts'
import { startResumption } from '../jobs/resume-endpoint.ts'
import { startEndpointRetry } from '../jobs/retry-endpoint.ts'
import { operatorOf } from './operator-of.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, PAGE_SIZE, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { sendJob } from './send-job.ts'

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
type OfId = { Params: { id: string } }

export function endpointRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, now } = parts
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

  const targetOf = async (id: string) => {
    const endpoint = await endpointOf(id)
    const { organizationId } = found(await findAccountDetails(database, endpoint.accountId))
    return { ...endpoint, organizationId }
  }

  // The endpoint is active at once. A job makes its backlog due.
  api.post<OfId>('/endpoints/:id/resume', async (request, reply) => {
    const endpoint = await targetOf(request.params.id)
    return sendJob(request, reply, parts, async (transaction) =>
      found(await startResumption(transaction, operatorOf(request), endpoint)),
    )
  })

  api.post<OfId>('/endpoints/:id/retry', async (request, reply) => {
    const endpoint = await targetOf(request.params.id)
    return sendJob(request, reply, parts, (transaction) =>
      startEndpointRetry(transaction, operatorOf(request), endpoint, endpoint.failed),
    )
  })
}
