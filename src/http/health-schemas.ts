/** What the OpenAPI document says about GET /api and GET /api/health. */
import type { FastifySchema } from 'fastify'
import { REPLICATION_STATES } from '../postgres/replication.ts'
import { Type } from '../typebox.ts'
import { failures, jsonBody, reference, TAGS } from './schema-parts.ts'

export const serviceSchema: FastifySchema = {
  operationId: 'getService',
  summary: 'Get the name and version of the service',
  tags: [TAGS.service],
  response: {
    200: {
      description: 'The service is running.',
      ...jsonBody(Type.Object({ name: Type.String(), version: Type.String() })),
    },
    ...failures({}),
  },
}

export const healthSchema: FastifySchema = {
  operationId: 'getHealth',
  summary: 'Check the health of the service',
  description: 'Load balancers and orchestrators poll this endpoint.',
  tags: [TAGS.service],
  response: {
    200: {
      description: 'The service can do its work, or a part of it (`degraded`).',
      ...jsonBody(
        Type.Object({
          status: Type.Union([Type.Literal('ok'), Type.Literal('degraded')], {
            description: '`degraded`: clients can read, but nothing can be stored.',
          }),
          database: Type.Union([Type.Literal('up'), Type.Literal('read-only'), Type.Literal('none')], {
            description: '`none`: the service was started without a database.',
          }),
          replication: Type.Optional(
            Type.Union(
              REPLICATION_STATES.map((state) => Type.Literal(state)),
              {
                description:
                  'Whether a second disk has what was acknowledged: only if `synchronous`. Present if `DATABASE_URL` names several hosts or `synchronous_standby_names` is set; at most ten seconds old.',
              },
            ),
          ),
        }),
      ),
    },
    503: {
      description: 'The database does not answer, or the service is shutting down.',
      ...jsonBody(reference('Error')),
    },
    ...failures({}),
  },
}
