/**
 * `endpoint.resend`: sends the present state of all members that match a filter to a `members` endpoint. The walk is by id, as for
 * `members.tag`: the members that existed when the job started and match when their page is read.
 */
import type { AccountId } from '../accounts/account.ts'
import type { Filters } from '../audience/filters.ts'
import { queueResentMembers } from '../endpoints/replays.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointOfJob, startEndpointJob } from './endpoint-backlog.ts'
import { itemsPerRequest, requireNoReplay, sendPaced } from './replay-pace.ts'
import { BEGINNING, readSelected, type Selection, selectMembers } from './selection.ts'
import type { RunStep } from './step.ts'

/** Unsent deliveries of a job. Live changes of the endpoint wait behind them. */
const WAITING_MIN = 100

interface Parameters extends Selection {
  endpointId: string
  rate: number
}

/** Call it in a transaction. @param count members that match now. Throws `replay_running` and `too_many_jobs`. */
export async function startResend(
  transaction: Queryable,
  actor: Actor,
  endpoint: EndpointOfJob,
  { filters, rate }: { filters: Filters; rate: number },
  count: number,
): Promise<bigint> {
  await requireNoReplay(transaction, endpoint.id)
  const selection = await selectMembers(transaction, endpoint.accountId, filters)
  const job = { kind: 'endpoint.resend', parameters: { ...selection, rate }, total: count } as const
  const changes = { filters: selection.matching, members: count, rate }
  return startEndpointJob(transaction, actor, endpoint, job, { action: 'endpoint.resent', changes })
}

export const resendMembers: RunStep = (job, step) => {
  const { endpointId, rate } = job.parameters as Parameters
  return sendPaced(job, step, {
    start: { ...BEGINNING, isEnd: false },
    waitingMax: Math.max(WAITING_MIN, rate),
    queueNext: async (transaction, before) => {
      if (before.isEnd) return { queued: 0, position: before, isEnd: true }
      const { ids, position } = await readSelected(transaction, job, itemsPerRequest(rate))
      if (ids.length > 0) {
        const of = { accountId: job.accountId as AccountId, endpointId: BigInt(endpointId), jobId: job.id }
        await queueResentMembers(transaction, of, ids)
      }
      const isEnd = position === null
      return { queued: ids.length, position: { ...(position ?? before), isEnd }, isEnd }
    },
  })
}
