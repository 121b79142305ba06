/** What replays and resends have in common: how they start, when they wait, and how fast they go. */
import { examineReplay, type ReplayState } from '../endpoints/replays.ts'
import { AppError } from '../errors.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type Job, REPLAY_KINDS } from './job.ts'
import type { Progress, Step } from './step.ts'

/** Events or members per second. A receiver that handles live traffic handles this in addition: 10 requests of 5 events. */
export const RATE_DEFAULT = 50
/** 10 requests per second of 100 events, which one request in flight reaches if it is answered within 50 ms. */
export const RATE_MAX = 1_000
/** Requests per second of a replay. More events per second make larger requests. */
const REQUESTS_PER_SECOND = 10
/** LINE itself sends at most 100 events per request. */
const ITEMS_PER_REQUEST_MAX = 100
/** A job that was delayed catches up with one second's worth at most. */
const BURST_MS = 1_000
/** A job looks again after this part of the age of what it waits for: a request takes milliseconds or seconds. */
const PART_OF_AGE = 1 / 4
const SHORTEST_WAIT_MS = 20
const LONGEST_WAIT_MS = 1_000
/** Of a paused endpoint, or between retries. */
const LONG_WAIT_MS = 3_000

/** $1 endpoint id bigint. Two starts take turns. */
const lockEndpoint = statement('lock-replayed-endpoint')`
    select id from endpoint where id = $1 for no key update`

/** $1 endpoint id text, $2 kinds text[] */
const selectRunning = statement('select-running-replay')`
    select id from job where status = 'running' and kind = any ($2) and parameters ->> 'endpointId' = $1 limit 1`

/** Two replays of an endpoint would mix the order of their events. Throws `replay_running`. */
export async function requireNoReplay(transaction: Queryable, endpointId: bigint): Promise<void> {
  await transaction.query(lockEndpoint, [endpointId])
  const [running] = await transaction.query<{ id: bigint }>(selectRunning, [String(endpointId), REPLAY_KINDS])
  if (running === undefined) return
  const message = `Task ${running.id} sends to endpoint ${endpointId} again and has not ended. Wait for its end or cancel it, then try again.`
  throw new AppError('replay_running', { message })
}

interface Queued<Position> {
  /** events or members */
  queued: number
  /** behind them */
  position: Position
  /** Nothing is left to queue. */
  isEnd: boolean
}

interface Paced<Position> {
  start: Position
  /** unsent deliveries at which the job waits */
  waitingMax: number
  /** @param dueMs when these items were to be queued, by the clock of the database, which all instances share */
  queueNext: (
    transaction: Queryable,
    position: Position,
    state: ReplayState,
    dueMs: number,
  ) => Promise<Queued<Position>>
}

/** Queues the next events or members, unless it is too early, or the receiver has not accepted the earlier ones. */
export async function sendPaced<Position extends object>(
  job: Job,
  { commit, onQueued }: Step,
  { start, waitingMax, queueNext }: Paced<Position>,
): Promise<void> {
  const { endpointId, rate } = job.parameters as { endpointId: string; rate: number }
  const stored: Position & { nextMs?: number | null } = (job.position as Position | null) ?? start
  const { nextMs, ...from } = stored
  await commit(async (transaction): Promise<Progress> => {
    const { done } = job
    const { refused = 0 } = job.tally as { refused?: number }
    const state = await examineReplay(transaction, job.id, BigInt(endpointId))
    if (state === null) return { position: null, done, tally: job.tally, failure: 'endpoint_removed' }
    // `refused` counts events or members, and `waiting` says why the job does not go on.
    const tally = { refused: refused + state.refused, waiting: waitsFor(state) }
    if (state.hasFailed) return { position: null, done, tally, failure: 'receiver_failed' }
    if (tally.waiting === 'paused' || state.waiting >= waitingMax) {
      const resumeInMs = tally.waiting === 'paused' ? LONG_WAIT_MS : waitMs(state)
      return { position: stored, done, tally, resumeInMs }
    }
    const { nowMs } = state
    // A job waits for seconds at most: a later time was stored while the clock of the database was ahead.
    const dueMs = nextMs == null || nextMs > nowMs + LONG_WAIT_MS ? nowMs : nextMs
    if (dueMs > nowMs) return { position: { ...from, nextMs: dueMs }, done, tally, resumeInMs: dueMs - nowMs }
    const { queued, isEnd, position } = await queueNext(transaction, stored, state, dueMs)
    if (isEnd && queued === 0 && state.waiting === 0) return { position: null, done, tally }
    const laterMs = Math.max(dueMs, nowMs - BURST_MS) + (queued * 1000) / rate
    const pauseMs = isEnd ? waitMs(state) : Math.max(SHORTEST_WAIT_MS, laterMs - nowMs)
    // After an empty page, the job does not wait: another page follows.
    return {
      position: { ...position, nextMs: laterMs },
      done: done + BigInt(queued),
      tally,
      ...((queued > 0 || isEnd) && { resumeInMs: pauseMs }),
    }
  })
  onQueued(BigInt(endpointId))
}

function waitsFor({ status, isRetrying }: ReplayState): 'paused' | 'receiver' | null {
  if (status !== 'active') return 'paused'
  return isRetrying ? 'receiver' : null
}

/** How long to wait for deliveries that are being sent or retried. */
function waitMs({ ageMs, dueInMs }: Pick<ReplayState, 'ageMs' | 'dueInMs'>): number {
  if (dueInMs > 0) return Math.min(LONG_WAIT_MS, Math.max(SHORTEST_WAIT_MS, dueInMs))
  return Math.min(LONGEST_WAIT_MS, Math.max(SHORTEST_WAIT_MS, ageMs * PART_OF_AGE))
}

export const itemsPerRequest = (rate: number): number =>
  Math.min(ITEMS_PER_REQUEST_MAX, Math.max(1, Math.round(rate / REQUESTS_PER_SECOND)))

/** Items of the next request: more than usual if the last one took longer than its share of a second. */
export function itemsNow(dueMs: number, rate: number, nowMs: number): number {
  const lateMs = Math.min(BURST_MS, nowMs - dueMs)
  return Math.min(ITEMS_PER_REQUEST_MAX, Math.max(itemsPerRequest(rate), Math.floor((lateMs * rate) / 1000)))
}
