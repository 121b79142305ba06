/** Operators. Owners of some organizations manage the operators of these organizations. */
import type { FastifyInstance } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, Nullable } from '../../http/validate.ts'
import { ROLES } from '../actor.ts'
import { addOperator, inviteOperator, listOperators, updateOperator } from '../people/operators.ts'
import type { ConsoleParts } from './parts.ts'
import { Id, requireId, ShortText } from './parts.ts'
import { OWNER, operatorOf } from './session.ts'

const fields = {
  name: Nullable(ShortText),
  role: Type.Enum([...ROLES]),
  organizationIds: Nullable(Type.Array(Id, { maxItems: 1_000 })),
}
const checkNew = checker(Type.Object({ email: ShortText, ...fields }, { additionalProperties: false }))
const checkChanges = checker(
  Type.Partial(
    Type.Object({ ...fields, status: Type.Enum(['active', 'disabled']) }, { additionalProperties: false }),
  ),
)

type OfId = { Params: { id: string } }

export function operatorRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  api.get('/operators', OWNER, async (request) => ({
    operators: await listOperators(database, operatorOf(request).organizationIds),
  }))

  api.post('/operators', OWNER, async (request) => {
    const { email, organizationIds, ...rest } = checkNew(parseUtf8Json(bodyBytes(request)))
    return addOperator(database, operatorOf(request), email, {
      ...rest,
      organizationIds: organizationIds?.map(requireId) ?? null,
    })
  })

  api.post<OfId>('/operators/:id', OWNER, async (request, reply) => {
    const { organizationIds, ...rest } = checkChanges(parseUtf8Json(bodyBytes(request)))
    const changes =
      organizationIds === undefined ? {} : { organizationIds: organizationIds?.map(requireId) ?? null }
    const id = requireId(request.params.id)
    await updateOperator(database, operatorOf(request), id, { ...rest, ...changes })
    return reply.code(204).send()
  })

  api.post<OfId>('/operators/:id/invite', OWNER, async (request) =>
    inviteOperator(database, operatorOf(request), requireId(request.params.id)),
  )
}
