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
    const state = database.kind === 'none' ? 'none' : await pingDatabase(database)
    if (state !== 'down' && !isClosing()) return { status: 'ok', database: state }
    const message = state === 'down' ? 'The database does not answer' : 'The service is shutting down'
    const error = errorEnvelope(new AppError('unavailable', { message }), request.id)
    return reply.code(503).send({ ...error, status: 'unavailable', database: state })
  })
}

/** Health probes wait 1 to 2 s, so a slower database counts as down. */
const ANSWER_TIMEOUT_MS = 1_500

function pingDatabase(database: Database): Promise<'up' | 'down'> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('down'), ANSWER_TIMEOUT_MS)
    database
      .query('select 1')
      .then(
        () => resolve('up'),
        () => resolve('down'),
      )
      .finally(() => clearTimeout(timer))
  })
}
