/** Outgoing webhooks: endpoints, their deliveries, pause, resume and retry. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { pauseEndpoint } from '../../endpoints/manage.ts'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { findAccountDetails } from '../accounts.ts'
import { findEndpoint, listEndpoints, pageDeliveries, previewDelivery } from '../endpoints.ts'
import { startResumption } from '../jobs/resume-endpoint.ts'
import { startEndpointRetry } from '../jobs/retry-endpoint.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, PAGE_SIZE, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { sendJob } from './send-job.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

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
  api.get('/endpoints', VIEWER, async (request) => {
    const { account, after } = checkList(request.query)
    const afterId = idOrNull(after)
    const page = { limit: READ_LIMIT, ...(afterId === null ? {} : { afterId }) }
    const endpoints = await listEndpoints(
      database,
      operatorOf(request).organizationIds,
      idOrNull(account),
      page,
    )
    const { items, next } = pageOf(endpoints)
    return { endpoints: items, next }
  })

  /** Every route of an endpoint begins with it: an endpoint that the operator does not see does not exist. */
  const endpointOf = async (request: FastifyRequest<OfId>) =>
    found(await findEndpoint(database, operatorOf(request).organizationIds, requireId(request.params.id)))

  api.get<OfId>('/endpoints/:id', VIEWER, async (request) => ({ endpoint: await endpointOf(request) }))

  api.get<OfId>('/endpoints/:id/deliveries', VIEWER, async (request) => {
    const endpoint = await endpointOf(request)
    const { status, dueUs, after } = checkDeliveries(request.query)
    const id = idOrNull(after)
    const position = id === null ? null : { id, dueUs: BigInt(dueUs ?? 0) }
    return pageDeliveries(database, endpoint.id, status, position, PAGE_SIZE)
  })

  api.get<{ Params: { id: string; delivery: string } }>(
    '/endpoints/:id/deliveries/:delivery',
    VIEWER,
    async (request) => {
      const endpoint = await endpointOf(request)
      const delivery = requireId(request.params.delivery)
      return { request: found(await previewDelivery(database, endpoint, delivery, now())) }
    },
  )

  api.post<OfId>('/endpoints/:id/pause', MANAGER, async (request, reply) => {
    const { id } = await endpointOf(request)
    found((await pauseEndpoint(database, id)) || null)
    return reply.code(204).send()
  })

  const targetOf = async (request: FastifyRequest<OfId>) => {
    const endpoint = await endpointOf(request)
    const { organizationIds } = operatorOf(request)
    const { organizationId } = found(await findAccountDetails(database, organizationIds, endpoint.accountId))
    return { ...endpoint, organizationId }
  }

  // The endpoint is active at once. A job makes its backlog due.
  api.post<OfId>('/endpoints/:id/resume', MANAGER, async (request, reply) => {
    const endpoint = await targetOf(request)
    return sendJob(request, reply, parts, async (transaction) =>
      found(await startResumption(transaction, operatorOf(request), endpoint)),
    )
  })

  api.post<OfId>('/endpoints/:id/retry', MANAGER, async (request, reply) => {
    const endpoint = await targetOf(request)
    return sendJob(request, reply, parts, (transaction) =>
      startEndpointRetry(transaction, operatorOf(request), endpoint, endpoint.failed),
    )
  })
}
