import type { FastifyInstance, FastifySchema } from 'fastify'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { REPLICATION_STATES } from '../postgres/replication/replication.ts'
import { errorEnvelope } from './error-envelope.ts'
import { failures, jsonBody, reference, TAGS } from './schema-parts.ts'
import { Type } from './typebox.ts'

interface Parts {
  name: string
  version: string
  database: Database
  isClosing: () => boolean
}

export function healthRoutes(app: FastifyInstance, { name, version, database, isClosing }: Parts): void {
  // Some monitors send HEAD. No other route offers it.
  const exposeHeadRoute = true
  app.get('/api', { schema: serviceSchema, exposeHeadRoute }, async () => ({ name, version }))

  app.get('/api/health', { schema: healthSchema, exposeHeadRoute }, async (request, reply) => {
    const state = await database.state()
    if (state !== 'down' && !isClosing()) {
      const { replication } = database
      const status = state === 'read-only' || state === 'failing' ? 'degraded' : 'ok'
      return { status, database: state, ...(replication === null ? {} : { replication }) }
    }
    const message = state === 'down' ? 'The database does not respond' : 'The service is shutting down'
    const error = errorEnvelope(new AppError('unavailable', { message }), request.id)
    return reply.code(503).send({ ...error, status: 'unavailable', database: state })
  })
}

const serviceSchema: FastifySchema = {
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

const healthSchema: FastifySchema = {
  operationId: 'getHealth',
  summary: 'Check the health of the service',
  description: 'Load balancers and orchestrators poll this endpoint.',
  tags: [TAGS.service],
  response: {
    200: {
      description: 'The service works, at least in part (`degraded`).',
      ...jsonBody(
        Type.Object({
          status: Type.Union([Type.Literal('ok'), Type.Literal('degraded')], {
            description: '`degraded`: clients can read, but nothing can be stored.',
          }),
          database: Type.Union(
            ['up', 'read-only', 'failing', 'none'].map((state) => Type.Literal(state)),
            {
              description:
                '`failing`: it responds, but the last delivery to this process could not be stored, for example because its disk is full. `none`: the service was started without a database.',
            },
          ),
          replication: Type.Optional(
            Type.Union(
              REPLICATION_STATES.map((state) => Type.Literal(state)),
              {
                description:
                  'Whether a second disk has all acknowledged data, which is so only if `synchronous`. Present if `DATABASE_URL` has several hosts or `synchronous_standby_names` is set. At most ten seconds old.',
              },
            ),
          ),
        }),
      ),
    },
    503: {
      description: 'The database does not respond, or the service is shutting down.',
      ...jsonBody(reference('Error')),
    },
    ...failures({}),
  },
}
