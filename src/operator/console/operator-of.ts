import type { FastifyRequest } from 'fastify'
import type { Operator } from '../actor.ts'

/** The person who sent a request of the console. */
export function operatorOf(request: FastifyRequest): Operator {
  return {
    kind: 'token',
    operatorId: null,
    name: 'token',
    role: 'owner',
    organizationIds: null,
    requestId: request.id,
  }
}
