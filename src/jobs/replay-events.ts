/**
 * `endpoint.replay`: sends the stored events of a time range to a `line` endpoint again.
 *
 * 1. A transaction queues the next events as one delivery and stores the position behind them. So a kill repeats nothing.
 * 2. The sender sends it like all deliveries. Meanwhile the job waits, so requests arrive in the order of the events.
 * 3. When the receiver has accepted it, the row is gone, and the next events are queued.
 */
import type { AccountId } from '../accounts/account.ts'
import { beforeEventsAt, queueReplayedEvents } from '../endpoints/replays.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointOfJob, startEndpointJob } from './endpoint-backlog.ts'
import { itemsNow, requireNoReplay, sendPaced } from './replay-pace.ts'
import type { RunStep } from './step.ts'

/** As much as five requests of LINE with long messages. The receiver's limit is unknown: Express accepts 100 KB by default, Rails 10 MB. */
const BYTES_PER_REQUEST_MAX = 512 * 1024
/** Events that one statement examines in addition to twice those of a request: some are of other sources, or erased. */
const EXAMINED_MIN = 100

export interface ReplayRequest {
  /** ISO 8601 in UTC; the range includes `from` and excludes `to` */
  from: string
  to: string
  /** kinds; null: all that the endpoint receives */
  events: string[] | null
  /** events per second */
  rate: number
}

interface Parameters extends ReplayRequest {
  endpointId: string
}

/** Call it in a transaction. @param count null: unknown. Throws `replay_running` and `too_many_jobs`. */
export async function startReplay(
  transaction: Queryable,
  actor: Actor,
  endpoint: EndpointOfJob,
  request: ReplayRequest,
  count: number | null,
): Promise<bigint> {
  await requireNoReplay(transaction, endpoint.id)
  const job = { kind: 'endpoint.replay', parameters: request, total: count } as const
  const activity = { action: 'endpoint.replayed', changes: { ...request, count } } as const
  return startEndpointJob(transaction, actor, endpoint, job, activity)
}

export const replayEvents: RunStep = (job, step) => {
  const { endpointId, from, to, events: kinds, rate } = job.parameters as Parameters
  return sendPaced(job, step, {
    start: { after: beforeEventsAt(from) },
    waitingMax: 1,
    queueNext: async (transaction, { after }, { nowMs, events: endpointKinds }, dueMs) => {
      const maxEvents = itemsNow(dueMs, rate, nowMs)
      const { queued, next, isLast } = await queueReplayedEvents(
        transaction,
        {
          accountId: job.accountId as AccountId,
          endpointId: BigInt(endpointId),
          jobId: job.id,
          after,
          until: to,
          kinds,
          endpointKinds,
        },
        { maxEvents, maxBytes: BYTES_PER_REQUEST_MAX, examined: 2 * maxEvents + EXAMINED_MIN },
      )
      return { queued, position: { after: next }, isEnd: isLast }
    },
  })
}
