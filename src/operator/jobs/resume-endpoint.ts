/** `endpoint.resume`: an endpoint is active again at once, and the job makes its backlog due. */
import { beginResumption, continueResumption } from '../../endpoints/manage.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { Actor } from '../actor.ts'
import { startJob } from './job.ts'
import type { EndpointOfJob } from './retry-endpoint.ts'
import type { RunStep } from './step.ts'

interface Parameters {
  endpointId: string
}

/** Call it in a transaction. Returns null if the endpoint does not exist. */
export async function startResumption(
  transaction: Queryable,
  actor: Actor,
  { id, accountId, organizationId }: EndpointOfJob,
): Promise<bigint | null> {
  const position = await beginResumption(transaction, id)
  if (position === null) return null
  const parameters: Parameters = { endpointId: String(id) }
  const job = {
    kind: 'endpoint.resume',
    accountId,
    organizationId,
    parameters: { ...parameters },
    position,
    total: null,
  } as const
  return startJob(transaction, actor, job, { action: 'endpoint.resumed', object: { kind: 'endpoint', id } })
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
