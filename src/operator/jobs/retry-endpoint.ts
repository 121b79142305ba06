/** `endpoint.retry`: makes all permanently failed deliveries of an endpoint due. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import { retryFailedBatch } from '../../endpoints/manage.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { Actor } from '../actor.ts'
import { startJob } from './job.ts'
import type { RunStep } from './step.ts'

interface Parameters {
  endpointId: string
}

export interface EndpointOfJob {
  id: bigint
  accountId: AccountId
  organizationId: OrganizationId
}

/** Call it in a transaction. @param failed deliveries; null: not counted */
export function startEndpointRetry(
  transaction: Queryable,
  actor: Actor,
  { id, accountId, organizationId }: EndpointOfJob,
  failed: number | null,
): Promise<bigint> {
  const parameters: Parameters = { endpointId: String(id) }
  const job = {
    kind: 'endpoint.retry',
    accountId,
    organizationId,
    parameters: { ...parameters },
    total: failed,
  } as const
  return startJob(transaction, actor, job, { action: 'endpoint.retried', object: { kind: 'endpoint', id } })
}

export const retryEndpoint: RunStep = async ({ parameters, done: before }, { commit }) => {
  const { endpointId } = parameters as Parameters
  await commit(async (transaction) => {
    const { retried, isLast } = await retryFailedBatch(transaction, BigInt(endpointId))
    return { position: isLast ? null : {}, done: before + BigInt(retried), tally: {} }
  })
}
