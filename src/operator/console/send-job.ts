import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Queryable } from '../../postgres/statement.ts'
import { findJob } from '../jobs/job.ts'
import type { ConsoleParts } from './parts.ts'
import { operatorOf } from './session.ts'

type Start = (transaction: Queryable) => Promise<bigint>
type Parts = Pick<ConsoleParts, 'database' | 'onJob'>

/** Stores a job in one transaction with its entry in the activity log. It begins in this process at once. */
export async function sendJob(
  request: FastifyRequest,
  reply: FastifyReply,
  { database, onJob }: Parts,
  start: Start,
): Promise<FastifyReply> {
  const id = await database.transaction(start)
  onJob?.()
  return reply.code(202).send({ job: await findJob(database, operatorOf(request), id) })
}
