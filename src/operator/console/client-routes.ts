/** API clients and their keys. Only the response of the creation contains a secret. */
import type { FastifyInstance } from 'fastify'
import { addClient, addKey, revokeClient, revokeKey } from '../../accounts/provisioning.ts'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { INT64_MIN } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { checker } from '../../http/validate.ts'
import { findClient, listClientDetails, listKeyDetails } from '../clients.ts'
import type { ConsoleParts } from './parts.ts'
import { found, Id, idOrNull, pageOf, READ_LIMIT, requireId, ShortText } from './parts.ts'

const checkPage = checker(Type.Object({ after: Type.Optional(Id) }, { additionalProperties: false }))
const checkClient = checker(Type.Object({ name: Type.Optional(ShortText) }, { additionalProperties: false }))
const checkKey = checker(Type.Object({ account: Id }, { additionalProperties: false }))

type OfId = { Params: { id: string } }

export function clientRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  const positionOf = (query: unknown) => ({
    afterId: idOrNull(checkPage(query).after) ?? INT64_MIN,
    limit: READ_LIMIT,
  })

  api.get('/clients', async ({ query }) => {
    const { items, next } = pageOf(await listClientDetails(database, positionOf(query)))
    return { clients: items, next }
  })

  api.get<OfId>('/clients/:id', async ({ params }) => ({
    client: found(await findClient(database, requireId(params.id))),
  }))

  api.get<OfId>('/clients/:id/keys', async ({ params, query }) => {
    const keys = await listKeyDetails(database, { client: requireId(params.id) }, positionOf(query))
    const { items, next } = pageOf(keys)
    return { keys: items, next }
  })

  api.get<OfId>('/accounts/:id/keys', async ({ params, query }) => {
    const keys = await listKeyDetails(database, { account: requireId(params.id) }, positionOf(query))
    const { items, next } = pageOf(keys)
    return { keys: items, next }
  })

  api.post('/clients', async (request) => {
    const { name } = checkClient(parseUtf8Json(bodyBytes(request)))
    return addClient(database, name?.trim() || null)
  })

  api.post<OfId>('/clients/:id/keys', async (request) => {
    const { account } = checkKey(parseUtf8Json(bodyBytes(request)))
    const client = found(await findClient(database, requireId(request.params.id)))
    const added = await addKey(database, client.id, idOrNull(account) ?? 0n)
    if (added === null) throw new AppError('unknown_account')
    return added
  })

  api.post<OfId>('/clients/:id/revoke', async ({ params }, reply) => {
    found((await revokeClient(database, requireId(params.id))) || null)
    return reply.code(204).send()
  })

  api.post<OfId>('/keys/:id/revoke', async ({ params }, reply) => {
    found((await revokeKey(database, requireId(params.id))) || null)
    return reply.code(204).send()
  })
}
