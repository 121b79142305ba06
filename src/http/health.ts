/** GET /api and GET /api/health. */
import type { FastifyInstance } from 'fastify'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { errorEnvelope } from './error-envelope.ts'
import { healthSchema, serviceSchema } from './health-schemas.ts'

interface Parts {
  name: string
  version: string
  database: Database
  /** true during graceful shutdown */
  isClosing: () => boolean
}

export function healthRoutes(app: FastifyInstance, { name, version, database, isClosing }: Parts): void {
  app.get('/api', { schema: serviceSchema }, async () => ({ name, version }))

  app.get('/api/health', { schema: healthSchema }, async (request, reply) => {
    const state = await database.state()
    if (state !== 'down' && !isClosing()) {
      const { replication } = database
      const status = state === 'read-only' ? 'degraded' : 'ok'
      return { status, database: state, ...(replication === null ? {} : { replication }) }
    }
    const message = state === 'down' ? 'The database does not answer' : 'The service is shutting down'
    const error = errorEnvelope(new AppError('unavailable', { message }), request.id)
    return reply.code(503).send({ ...error, status: 'unavailable', database: state })
  })
}
