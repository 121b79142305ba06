import type { FastifyInstance } from 'fastify'
import { AppError } from '../../errors.ts'
import { bodyBytes, parseUtf8Json } from '../../http/body.ts'
import { Type } from '../../http/typebox.ts'
import { checker, refuseInput } from '../../http/validate.ts'
import {
  addOrganization,
  findOrganizationContents,
  listOrganizations,
  removeOrganization,
  renameOrganization,
} from '../accounts/organizations.ts'
import type { ConsoleParts } from './parts.ts'
import { requireId, ShortText } from './parts.ts'
import { OWNER, operatorOf, VIEWER } from './session.ts'

const checkName = checker(Type.Object({ name: ShortText }, { additionalProperties: false }))

type OfId = { Params: { id: string } }

export function organizationRoutes(api: FastifyInstance, { database }: ConsoleParts): void {
  api.get('/organizations', VIEWER, async (request) => ({
    organizations: await listOrganizations(database, operatorOf(request).organizationIds),
  }))

  api.post('/organizations', OWNER, async (request) => {
    const name = readName(bodyBytes(request))
    return { id: await addOrganization(database, operatorOf(request), name) }
  })

  api.post<OfId>('/organizations/:id', OWNER, async (request, reply) => {
    const name = readName(bodyBytes(request))
    const id = requireId(request.params.id)
    await renameOrganization(database, operatorOf(request), id, name)
    return reply.code(204).send()
  })

  api.get<OfId>('/organizations/:id/contents', OWNER, async (request) => {
    const { organizationIds } = operatorOf(request)
    return findOrganizationContents(database, organizationIds, requireId(request.params.id))
  })

  api.post<OfId>('/organizations/:id/remove', OWNER, async (request, reply) => {
    const operator = operatorOf(request)
    const id = requireId(request.params.id)
    const { name } = await findOrganizationContents(database, operator.organizationIds, id)
    requireTyped(readName(bodyBytes(request)), name)
    const { accounts } = await removeOrganization(database, operator, id)
    if (accounts > 0)
      throw new AppError('invalid_input', {
        message: `The organization still has accounts: ${accounts}. Remove each of them first.`,
      })
    return reply.code(204).send()
  })
}

function readName(body: Buffer): string {
  const name = checkName(parseUtf8Json(body)).name.trim()
  return name === '' ? refuseInput('name', 'must not be empty') : name
}

/** Refuses a removal unless the operator typed the name. */
export function requireTyped(typed: string, name: string): void {
  if (typed !== name.trim()) refuseInput('name', 'is not the name of what would be removed')
}
