/**
 * `endpoint.replay`: sends the stored events of a time range to a `line` endpoint again.
 *
 * 1. A transaction queues the next events as one delivery and stores the position behind them. So a kill repeats nothing.
 * 2. The sender sends it like all deliveries. Meanwhile the job waits, so requests arrive in the order of the events.
 * 3. When the receiver has accepted it, the row is gone, and the next events are queued.
 */
import type { AccountId } from '../accounts/account.ts'
import {
  beforeEventsAt,
  type EventPosition,
  queueReplayedEvents,
  type ReplayState,
} from '../endpoints/replays.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointOfJob, startEndpointJob } from './endpoint-backlog.ts'
import type { Job } from './job.ts'
import { dueAtMs, examine, itemsNow, nextAtMs, requireNoReplay, SHORTEST_WAIT_MS } from './replay-pace.ts'
import type { Progress, RunStep } from './step.ts'

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

interface Position {
  after: EventPosition
  /** events of the delivery that is being sent */
  sending: number
  /** when the next events may be queued, in milliseconds since 1970; null: at once */
  nextMs: number | null
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

export const replayEvents: RunStep = async (job, { commit, onQueued }) => {
  await commit((transaction) => continueReplay(transaction, job))
  onQueued(BigInt((job.parameters as Parameters).endpointId))
}

async function continueReplay(transaction: Queryable, job: Job): Promise<Progress> {
  const { endpointId: id, from, rate } = job.parameters as Parameters
  const endpointId = BigInt(id)
  const start: Position = { after: beforeEventsAt(from), sending: 0, nextMs: null }
  const stored = (job.position as Position | null) ?? start
  const examined = await examine(transaction, job, { endpointId, position: stored, waitingMax: 1 })
  if ('progress' in examined) return examined.progress
  const { state, tally } = examined
  const position = { ...stored, nextMs: dueAtMs(stored.nextMs ?? state.nowMs, state.nowMs) }
  // The last delivery is gone: accepted, refused, or without content.
  const done = job.done + BigInt(position.sending)
  const rested: Position = { ...position, sending: 0 }
  const pauseMs = position.nextMs - state.nowMs
  if (pauseMs > 0) return { position: rested, done, tally, resumeInMs: pauseMs }
  const { queued, next, isLast } = await queueNext(transaction, job, position, state)
  if (queued > 0) {
    const nextMs = nextAtMs(position.nextMs, queued, rate, state.nowMs)
    const sent: Position = { after: next, sending: queued, nextMs }
    return { position: sent, done, tally, resumeInMs: SHORTEST_WAIT_MS }
  }
  return { position: isLast ? null : { ...rested, after: next }, done, tally }
}

function queueNext(
  transaction: Queryable,
  job: Job,
  { after, nextMs }: Position & { nextMs: number },
  state: ReplayState,
) {
  const { endpointId, to, events: kinds, rate } = job.parameters as Parameters
  const maxEvents = itemsNow(nextMs, rate, state.nowMs)
  return queueReplayedEvents(
    transaction,
    {
      accountId: job.accountId as AccountId,
      endpointId: BigInt(endpointId),
      jobId: job.id,
      after,
      until: to,
      kinds,
      endpointKinds: state.events,
    },
    { maxEvents, maxBytes: BYTES_PER_REQUEST_MAX, examined: 2 * maxEvents + EXAMINED_MIN },
  )
}
