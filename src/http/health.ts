/** GET /api and GET /api/health. */
import type { FastifyInstance } from 'fastify'
import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { errorEnvelope } from './error-envelope.ts'

interface Parts {
  name: string
  version: string
  database: Database | null
  /** true while the service finishes what it has accepted and takes no new work */
  isClosing: () => boolean
}

export function healthRoutes(app: FastifyInstance, { name, version, database, isClosing }: Parts): void {
  app.get('/api', async () => ({ name, version }))

  app.get('/api/health', async (request, reply) => {
    const state = database === null ? 'none' : await stateOf(database)
    if (state !== 'down' && !isClosing()) return { status: 'ok', database: state }
    const message = state === 'down' ? 'The database does not answer' : 'The service is shutting down'
    const error = errorEnvelope(new AppError('unavailable', { message }), request.id)
    return reply.code(503).send({ ...error, status: 'unavailable', database: state })
  })
}

async function stateOf(database: Database): Promise<'up' | 'down'> {
  return database.query('select 1').then(
    () => 'up',
    () => 'down',
  )
}
