import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Queryable } from '../../postgres/statement.ts'
import { findJob } from '../jobs/job.ts'
import type { ConsoleParts } from './parts.ts'
import { operatorOf } from './session.ts'

/** Stores a job in one transaction with its entry in the activity log, and responds with it. It begins in this process at once. */
export async function sendJob(
  request: FastifyRequest,
  reply: FastifyReply,
  { database, onJob }: Pick<ConsoleParts, 'database' | 'onJob'>,
  start: (transaction: Queryable) => Promise<bigint>,
): Promise<FastifyReply> {
  const id = await database.transaction(start)
  onJob?.()
  return reply.code(202).send({ job: await findJob(database, operatorOf(request), id) })
}
