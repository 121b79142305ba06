/**
 * `endpoint.resend`: sends the present state of all members that match a filter to a `members` endpoint. The walk is by id, as for
 * `members.tag`: the members that existed when the job started and match when their page is read.
 */
import type { AccountId } from '../accounts/account.ts'
import type { Filters } from '../audience/filters.ts'
import { type IdPosition, readIds } from '../audience/select-list.ts'
import { queueResentMembers, type ReplayState } from '../endpoints/replays.ts'
import { INT64_MIN } from '../http/path-id.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointOfJob, startEndpointJob } from './endpoint-backlog.ts'
import type { Job } from './job.ts'
import {
  dueAtMs,
  examine,
  itemsPerRequest,
  nextAtMs,
  type ReplayTally,
  requireNoReplay,
  SHORTEST_WAIT_MS,
} from './replay-pace.ts'
import { publicFilters, scopeOfJob, selectLastMember } from './selection.ts'
import type { Progress, RunStep } from './step.ts'

/** Unsent deliveries of a job. Live changes of the endpoint wait behind them. */
const WAITING_MIN = 100

interface Parameters {
  endpointId: string
  filters: Filters
  /** the filters without personal text, which stay after the end of the job */
  matching: Record<string, unknown>
  rate: number
  /** members with greater ids joined after the start */
  untilId: string
}

interface Position {
  id: string
  isCommonName: boolean
  /** All members are queued. */
  isEnd: boolean
  /** members that were queued, sent or not */
  queued: number
  /** when the next members may be queued, in milliseconds since 1970 */
  nextMs: number
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
  const [last] = await transaction.query<{ id: bigint }>(selectLastMember, [endpoint.accountId])
  const matching = publicFilters(filters)
  const parameters = { filters, matching, rate, untilId: String(last?.id ?? INT64_MIN) }
  const job = { kind: 'endpoint.resend', parameters, total: count } as const
  const changes = { filters: matching, members: count, rate }
  return startEndpointJob(transaction, actor, endpoint, job, { action: 'endpoint.resent', changes })
}

export const resendMembers: RunStep = async (job, { commit, onQueued }) => {
  await commit((transaction) => continueResend(transaction, job))
  onQueued(BigInt((job.parameters as Parameters).endpointId))
}

const START: Position = { id: String(INT64_MIN), isCommonName: false, isEnd: false, queued: 0, nextMs: 0 }

async function continueResend(transaction: Queryable, job: Job): Promise<Progress> {
  const { endpointId, rate } = job.parameters as Parameters
  const stored = (job.position as Position | null) ?? START
  const waitingMax = Math.max(WAITING_MIN, rate)
  const of = { endpointId: BigInt(endpointId), position: stored, waitingMax }
  const examined = await examine(transaction, job, of)
  if ('progress' in examined) return examined.progress
  const { state, tally } = examined
  const position = { ...stored, nextMs: dueAtMs(stored.nextMs, state.nowMs) }
  if (position.isEnd) return awaitEnd(position, state, tally)
  const pauseMs = position.nextMs - state.nowMs
  if (pauseMs > 0) return { position, done: doneOf(position, state.waiting), tally, resumeInMs: pauseMs }
  const next = await queuePage(transaction, job, position, state)
  const added = next.queued - position.queued
  return {
    position: next,
    done: doneOf(next, state.waiting + added),
    tally,
    // An empty page is no reason to wait: another one follows.
    ...(added > 0 && { resumeInMs: Math.max(SHORTEST_WAIT_MS, next.nextMs - state.nowMs) }),
  }
}

const doneOf = ({ queued }: Position, waiting: number): bigint => BigInt(Math.max(0, queued - waiting))

function awaitEnd(position: Position, { waiting }: ReplayState, tally: ReplayTally): Progress {
  const done = doneOf(position, waiting)
  if (waiting === 0) return { position: null, done, tally }
  return { position, done, tally, resumeInMs: SHORTEST_WAIT_MS }
}

async function queuePage(
  transaction: Queryable,
  job: Job,
  { id, isCommonName, queued, nextMs }: Position,
  { nowMs }: ReplayState,
): Promise<Position> {
  const { endpointId, filters, untilId, rate } = job.parameters as Parameters
  const from: IdPosition = { kind: 'id', id: BigInt(id), isCommonName }
  const { ids, next } = await readIds(transaction, scopeOfJob(job), filters, from, itemsPerRequest(rate))
  const existing = ids.filter((each) => each <= BigInt(untilId))
  if (existing.length > 0) {
    const of = { accountId: job.accountId as AccountId, endpointId: BigInt(endpointId), jobId: job.id }
    await queueResentMembers(transaction, of, existing)
  }
  const isEnd = next === null || next.id > BigInt(untilId)
  return {
    ...(isEnd
      ? { id, isCommonName, isEnd }
      : { id: String(next.id), isCommonName: next.isCommonName, isEnd }),
    queued: queued + existing.length,
    nextMs: nextAtMs(nextMs, existing.length, rate, nowMs),
  }
}
