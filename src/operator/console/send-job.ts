import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Queryable } from '../../postgres/statement.ts'
import { findJob, type JobSummary } from '../jobs/job.ts'
import type { ConsoleParts } from './parts.ts'
import { operatorOf } from './session.ts'

type Start = (transaction: Queryable) => Promise<bigint>
type Parts = Pick<ConsoleParts, 'database' | 'onJob'>

/** Stores a job in one transaction with its entry in the activity log. It begins in this process at once. */
export async function startInTransaction(
  request: FastifyRequest,
  { database, onJob }: Parts,
  start: Start,
): Promise<{ job: JobSummary | null }> {
  const id = await database.transaction(start)
  onJob?.()
  return { job: await findJob(database, operatorOf(request), id) }
}

export async function sendJob(
  request: FastifyRequest,
  reply: FastifyReply,
  parts: Parts,
  start: Start,
): Promise<FastifyReply> {
  return reply.code(202).send(await startInTransaction(request, parts, start))
}
