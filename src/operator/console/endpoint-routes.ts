/** Outgoing webhooks: endpoints, their settings, deliveries and history. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isOwnUrl } from '../../endpoints/address.ts'
import { EndpointTester } from '../../endpoints/test-delivery.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, Nullable, StorableText } from '../../http/validate.ts'
import type { Queryable } from '../../postgres/statement.ts'
import { findAccountDetails } from '../accounts/accounts.ts'
import { listAttempts } from '../endpoints/endpoint-history.ts'
import { findEndpoint, listEndpoints, pageDeliveries, previewDelivery } from '../endpoints/endpoints.ts'
import {
  addEndpoint,
  endRotation,
  pause,
  removeBatch,
  rotate,
  test,
  updateEndpoint,
} from '../endpoints/manage-endpoints.ts'
import { startEndpointRetry, startResumption } from '../jobs/endpoint-backlog.ts'
import { findJob } from '../jobs/job.ts'
import type { ConsoleParts } from './parts.ts'
import { Id, idOrNull, PAGE_SIZE, pageOf, READ_LIMIT, requireId, ShortText } from './parts.ts'
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
/** Each setting may be omitted: an addition has defaults, and a change leaves it. */
const SETTINGS = {
  name: Type.Optional(StorableText({ maxLength: 256 })),
  events: Type.Optional(Nullable(Type.Array(ShortText, { maxItems: 100 }))),
  replies: Type.Optional(Type.Boolean()),
  allowPrivateNetwork: Type.Optional(Type.Boolean()),
}
/** Longer URLs are refused by common servers. */
const Url = StorableText({ minLength: 1, maxLength: 2_048 })
const Format = Type.Union([Type.Literal('line'), Type.Literal('members')])
const checkNew = checker(
  Type.Object({ account: Id, url: Url, format: Format, ...SETTINGS }, { additionalProperties: false }),
)
const checkChanges = checker(
  Type.Object({ url: Type.Optional(Url), ...SETTINGS }, { additionalProperties: false }),
)

type OfId = { Params: { id: string } }

export function endpointRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  readRoutes(api, parts)
  settingsRoutes(api, parts)
  backlogRoutes(api, parts)
}

function readRoutes(api: FastifyInstance, { database, now }: ConsoleParts): void {
  api.get('/endpoints', VIEWER, async (request) => {
    const { account, after } = checkList(request.query)
    const { organizationIds } = operatorOf(request)
    const afterId = idOrNull(after)
    const page = { limit: READ_LIMIT, ...(afterId === null ? {} : { afterId }) }
    const endpoints = await listEndpoints(database, organizationIds, idOrNull(account), page)
    const { items, next } = pageOf(endpoints)
    return { endpoints: items, next }
  })

  const endpointOf = endpointFinder(database)

  api.get<OfId>('/endpoints/:id', VIEWER, async (request) => ({ endpoint: await endpointOf(request) }))

  api.get<OfId>('/endpoints/:id/history', VIEWER, async (request) => {
    const { id } = await endpointOf(request)
    return { attempts: await listAttempts(database, id) }
  })

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
      return { request: await previewDelivery(database, endpoint, delivery, now()) }
    },
  )
}

/** An endpoint that the operator does not see does not exist. */
const endpointFinder = (database: Queryable) => async (request: FastifyRequest<OfId>) =>
  findEndpoint(database, operatorOf(request).organizationIds, requireId(request.params.id))

/** The endpoint with its organization. */
const targetFinder = (database: Queryable) => async (request: FastifyRequest<OfId>) => {
  const endpoint = await endpointFinder(database)(request)
  const { organizationIds } = operatorOf(request)
  const account = await findAccountDetails(database, organizationIds, endpoint.accountId)
  return { ...endpoint, organizationId: account.organizationId }
}

function settingsRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, ownUrls } = parts
  const tester = new EndpointTester((url) => isOwnUrl(url, ownUrls()))

  // Only this response and that of a rotation contain the secret.
  api.post('/endpoints', MANAGER, async (request) => {
    const { account, ...given } = checkNew(parseUtf8Json(bodyBytes(request)))
    const defaults = { name: '', events: null, replies: false, allowPrivateNetwork: false }
    const endpoint = { ...defaults, ...given, accountId: idOrNull(account) ?? 0n }
    return addEndpoint(database, operatorOf(request), endpoint, ownUrls())
  })

  // After a change of the receiver, a job makes the backlog due, as after resuming. If too many jobs run, nothing is changed.
  api.post<OfId>('/endpoints/:id/update', MANAGER, async (request) => {
    const changes = checkChanges(parseUtf8Json(bodyBytes(request)))
    const id = requireId(request.params.id)
    const operator = operatorOf(request)
    const { jobId } = await updateEndpoint(database, operator, id, changes, ownUrls())
    if (jobId === null) return { job: null }
    parts.onJob?.()
    return { job: await findJob(database, operator, jobId) }
  })

  api.post<OfId>('/endpoints/:id/test', MANAGER, async (request) =>
    test(database, operatorOf(request), requireId(request.params.id), tester),
  )

  api.post<OfId>('/endpoints/:id/rotate', MANAGER, async (request) => ({
    secret: await rotate(database, operatorOf(request), requireId(request.params.id)),
  }))

  api.post<OfId>('/endpoints/:id/finish-rotation', MANAGER, async (request, reply) => {
    await endRotation(database, operatorOf(request), requireId(request.params.id), 'new')
    return reply.code(204).send()
  })

  api.post<OfId>('/endpoints/:id/discard-rotation', MANAGER, async (request, reply) => {
    await endRotation(database, operatorOf(request), requireId(request.params.id), 'previous')
    return reply.code(204).send()
  })

  // Removes one batch. The page repeats the request until the last one.
  api.post<OfId>('/endpoints/:id/remove', MANAGER, async (request) =>
    removeBatch(database, operatorOf(request), requireId(request.params.id)),
  )
}

function backlogRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database } = parts
  const targetOf = targetFinder(database)

  api.post<OfId>('/endpoints/:id/pause', MANAGER, async (request, reply) => {
    await pause(database, operatorOf(request), requireId(request.params.id))
    return reply.code(204).send()
  })

  // The endpoint is active at once. A job makes its backlog due.
  api.post<OfId>('/endpoints/:id/resume', MANAGER, async (request, reply) => {
    const endpoint = await targetOf(request)
    return sendJob(request, reply, parts, (transaction) =>
      startResumption(transaction, operatorOf(request), endpoint),
    )
  })

  api.post<OfId>('/endpoints/:id/retry', MANAGER, async (request, reply) => {
    const endpoint = await targetOf(request)
    return sendJob(request, reply, parts, (transaction) =>
      startEndpointRetry(transaction, operatorOf(request), endpoint, endpoint.failed),
    )
  })
}
