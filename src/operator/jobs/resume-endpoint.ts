/** `endpoint.resume`: an endpoint is active again at once, and the job makes its backlog due. */
import { beginResumption, continueResumption, type Resumption } from '../../endpoints/manage.ts'
import { AppError } from '../../errors.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { Actor } from '../actor.ts'
import { type JobActivity, startJob } from './job.ts'
import type { EndpointOfJob } from './retry-endpoint.ts'
import type { RunStep } from './step.ts'

interface Parameters {
  endpointId: string
}

/** Call it in a transaction. Throws `unknown_item` if the endpoint does not exist. */
export async function startResumption(
  transaction: Queryable,
  actor: Actor,
  endpoint: EndpointOfJob,
): Promise<bigint> {
  const position = await beginResumption(transaction, endpoint.id)
  if (position === null) throw new AppError('unknown_item')
  const object = { kind: 'endpoint', id: endpoint.id } as const
  return startBacklog(transaction, actor, endpoint, position, { action: 'endpoint.resumed', object })
}

/** Makes the backlog of an active endpoint due. @param activity null: it is recorded elsewhere */
export function startBacklog(
  transaction: Queryable,
  actor: Actor,
  { id, accountId, organizationId }: EndpointOfJob,
  position: Resumption,
  activity: JobActivity | null,
): Promise<bigint> {
  const parameters: Parameters = { endpointId: String(id) }
  const job = { accountId, organizationId, parameters: { ...parameters }, position, total: null }
  return startJob(transaction, actor, { kind: 'endpoint.resume', ...job }, activity)
}

export const resumeEndpoint: RunStep = async ({ parameters, position, done: before }, { commit }) => {
  const { endpointId } = parameters as Parameters
  const { resumedAt, lastId } = position as { resumedAt: string; lastId: string }
  await commit(async (transaction) => {
    const from = { resumedAt, lastId: BigInt(lastId) }
    const rest = await continueResumption(transaction, BigInt(endpointId), from)
    return { position: rest, done: before + BigInt(rest?.count ?? 0), tally: {} }
  })
}
