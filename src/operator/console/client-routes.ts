/** API clients and their keys. Only the responses of an addition and a rotation contain a secret. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { INT64_MIN } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { checker, Nullable } from '../../http/validate.ts'
import { findClient, listClientDetails, listKeyDetails } from '../clients.ts'
import {
  addClient,
  addKey,
  previewClientRemoval,
  removeClient,
  revokeClient,
  revokeKey,
} from '../manage-clients.ts'
import { endClientRotation, rotateClient, updateClient, updateKey } from '../renew-credentials.ts'
import type { ConsoleParts } from './parts.ts'
import { Id, idOrNull, pageOf, READ_LIMIT, requireId, ShortText } from './parts.ts'
import { MANAGER, operatorOf, VIEWER } from './session.ts'

const checkPage = checker(Type.Object({ after: Type.Optional(Id) }, { additionalProperties: false }))
/** null: never */
const ExpiresAt = Nullable(ShortText)
const checkClient = checker(
  Type.Object(
    { name: Type.Optional(ShortText), account: Type.Optional(Id), expiresAt: Type.Optional(ExpiresAt) },
    { additionalProperties: false },
  ),
)
const checkKey = checker(
  Type.Object({ account: Id, expiresAt: Type.Optional(ExpiresAt) }, { additionalProperties: false }),
)
const checkExpiry = checker(Type.Object({ expiresAt: ExpiresAt }, { additionalProperties: false }))

type OfId = { Params: { id: string } }

export function clientRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  readRoutes(api, parts)
  addRoutes(api, parts)
  renewRoutes(api, parts)
  revokeRoutes(api, parts)
}

function readRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  const positionOf = (query: unknown) => ({
    afterId: idOrNull(checkPage(query).after) ?? INT64_MIN,
    limit: READ_LIMIT,
  })
  const organizationsOf = (request: FastifyRequest) => operatorOf(request).organizationIds

  api.get('/clients', VIEWER, async (request) => {
    const clients = await listClientDetails(database, organizationsOf(request), positionOf(request.query))
    const { items, next } = pageOf(clients)
    return { clients: items, next }
  })

  api.get<OfId>('/clients/:id', VIEWER, async (request) => ({
    client: await findClient(database, organizationsOf(request), requireId(request.params.id)),
  }))

  api.get<OfId>('/clients/:id/keys', VIEWER, async (request) => {
    const of = { client: requireId(request.params.id) }
    const keys = await listKeyDetails(database, organizationsOf(request), of, positionOf(request.query))
    const { items, next } = pageOf(keys)
    return { keys: items, next }
  })

  api.get<OfId>('/accounts/:id/keys', VIEWER, async (request) => {
    const of = { account: requireId(request.params.id) }
    const keys = await listKeyDetails(database, organizationsOf(request), of, positionOf(request.query))
    const { items, next } = pageOf(keys)
    return { keys: items, next }
  })
}

function addRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  api.post('/clients', MANAGER, async (request) => {
    const { name, account, expiresAt = null } = checkClient(parseUtf8Json(bodyBytes(request)))
    const accountId = idOrNull(account)
    return addClient(database, operatorOf(request), name?.trim() || null, accountId, expiresAt)
  })

  api.post<OfId>('/clients/:id/keys', MANAGER, async (request) => {
    const { account, expiresAt = null } = checkKey(parseUtf8Json(bodyBytes(request)))
    const client = requireId(request.params.id)
    return addKey(database, operatorOf(request), client, idOrNull(account) ?? 0n, expiresAt)
  })
}

function renewRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  api.post<OfId>('/clients/:id/update', MANAGER, async (request, reply) => {
    const { expiresAt } = checkExpiry(parseUtf8Json(bodyBytes(request)))
    await updateClient(database, operatorOf(request), requireId(request.params.id), expiresAt)
    return reply.code(204).send()
  })

  api.post<OfId>('/clients/:id/rotate', MANAGER, async (request) => ({
    clientSecret: await rotateClient(database, operatorOf(request), requireId(request.params.id)),
  }))

  api.post<OfId>('/clients/:id/finish-rotation', MANAGER, async (request, reply) => {
    await endClientRotation(database, operatorOf(request), requireId(request.params.id), 'new')
    return reply.code(204).send()
  })

  api.post<OfId>('/clients/:id/discard-rotation', MANAGER, async (request, reply) => {
    await endClientRotation(database, operatorOf(request), requireId(request.params.id), 'previous')
    return reply.code(204).send()
  })

  api.post<OfId>('/keys/:id/update', MANAGER, async (request, reply) => {
    const { expiresAt } = checkExpiry(parseUtf8Json(bodyBytes(request)))
    await updateKey(database, operatorOf(request), requireId(request.params.id), expiresAt)
    return reply.code(204).send()
  })
}

function revokeRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  api.post<OfId>('/clients/:id/revoke', MANAGER, async (request, reply) => {
    await revokeClient(database, operatorOf(request), requireId(request.params.id))
    return reply.code(204).send()
  })

  api.get<OfId>('/clients/:id/removal', MANAGER, async (request) =>
    previewClientRemoval(database, operatorOf(request), requireId(request.params.id)),
  )

  api.post<OfId>('/clients/:id/remove', MANAGER, async (request) =>
    removeClient(database, operatorOf(request), requireId(request.params.id)),
  )

  api.post<OfId>('/keys/:id/revoke', MANAGER, async (request, reply) => {
    await revokeKey(database, operatorOf(request), requireId(request.params.id))
    return reply.code(204).send()
  })
}
