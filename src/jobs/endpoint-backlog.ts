/** `endpoint.retry` makes the permanently failed deliveries of an endpoint due. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { retryFailedBatch } from '../endpoints/manage.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type JobActivity, type NewJob, startJob } from './job.ts'
import type { RunStep } from './step.ts'

export type EndpointOfJob = {
  id: bigint
  accountId: AccountId
  organizationId: OrganizationId
}

/** Call it in a transaction. @param activity null: it is recorded with the operation that starts the job */
export function startEndpointJob(
  transaction: Queryable,
  actor: Actor,
  { id, accountId, organizationId }: EndpointOfJob,
  job: Pick<NewJob, 'kind' | 'total'> & { parameters?: object },
  activity: Omit<JobActivity, 'object'> | null,
): Promise<bigint> {
  const parameters = { endpointId: String(id), ...job.parameters }
  return startJob(
    transaction,
    actor,
    { ...job, accountId, organizationId, parameters },
    activity && { ...activity, object: { kind: 'endpoint', id } },
  )
}

export const retryEndpoint: RunStep = async ({ parameters, done: before }, { commit }) => {
  const { endpointId } = parameters as { endpointId: string }
  await commit(async (transaction) => {
    const { retried, isLast } = await retryFailedBatch(transaction, BigInt(endpointId))
    return { position: isLast ? null : {}, done: before + BigInt(retried), tally: {} }
  })
}
