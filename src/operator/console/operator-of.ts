import type { FastifyRequest } from 'fastify'
import { ALL_ORGANIZATIONS, type Operator } from '../actor.ts'

/** The person who is signed in. Only CONSOLE_TOKEN signs in. */
export function operatorOf({ id }: FastifyRequest): Operator {
  return {
    kind: 'token',
    operatorId: null,
    name: 'token',
    organizationIds: ALL_ORGANIZATIONS,
    requestId: id,
    role: 'owner',
  }
}
