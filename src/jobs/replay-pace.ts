/** What replays and resends have in common: how they start, when they wait, and how fast they go. */
import { examineReplay, type ReplayState } from '../endpoints/replays.ts'
import { AppError } from '../errors.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type Job, REPLAY_KINDS } from './job.ts'
import type { Progress } from './step.ts'

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
export const SHORTEST_WAIT_MS = 20
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

/** Of a job. */
export interface ReplayTally {
  /** events or members of deliveries that the receiver has refused */
  refused: number
  /** why the job does not go on */
  waiting: 'paused' | 'receiver' | null
}

type Examined = { progress: Progress } | { state: ReplayState; tally: ReplayTally }

/**
 * Examines the deliveries of a job. Returns their state, or the progress of a job that ends or waits.
 * @param position where a job that waits continues
 * @param waitingMax unsent deliveries at which the job waits
 */
export async function examine(
  transaction: Queryable,
  { id, done, tally: before }: Pick<Job, 'id' | 'done' | 'tally'>,
  { endpointId, position, waitingMax }: { endpointId: bigint; position: unknown; waitingMax: number },
): Promise<Examined> {
  const state = await examineReplay(transaction, id, endpointId)
  if (state === null)
    return { progress: { position: null, done, tally: before, failure: 'endpoint_removed' } }
  const { refused = 0 } = before as Partial<ReplayTally>
  const tally: ReplayTally = { refused: refused + state.refused, waiting: waitsFor(state) }
  if (state.hasFailed) return { progress: { position: null, done, tally, failure: 'receiver_failed' } }
  const isPaused = state.status !== 'active'
  if (!isPaused && state.waiting < waitingMax) return { state, tally }
  return { progress: { position, done, tally, resumeInMs: isPaused ? LONG_WAIT_MS : waitMs(state) } }
}

function waitsFor({ status, isRetrying }: ReplayState): ReplayTally['waiting'] {
  if (status !== 'active') return 'paused'
  return isRetrying ? 'receiver' : null
}

/** How long to wait for deliveries that are being sent or retried. */
function waitMs({ ageMs, dueInMs }: Pick<ReplayState, 'ageMs' | 'dueInMs'>): number {
  if (dueInMs > 0) return Math.min(LONG_WAIT_MS, Math.max(SHORTEST_WAIT_MS, dueInMs))
  return Math.min(LONGEST_WAIT_MS, Math.max(SHORTEST_WAIT_MS, ageMs * PART_OF_AGE))
}

/** When a job may go on. It waits for seconds at most: a later time was stored while the clock of the database was ahead. */
export function dueAtMs(nextMs: number, nowMs: number): number {
  return nextMs > nowMs + LONG_WAIT_MS ? nowMs : nextMs
}

export const itemsPerRequest = (rate: number): number =>
  Math.min(ITEMS_PER_REQUEST_MAX, Math.max(1, Math.round(rate / REQUESTS_PER_SECOND)))

/** Items of the next request: more than usual if the last one took longer than its share of a second. */
export function itemsNow(nextMs: number, rate: number, nowMs: number): number {
  const lateMs = Math.min(BURST_MS, nowMs - nextMs)
  return Math.min(ITEMS_PER_REQUEST_MAX, Math.max(itemsPerRequest(rate), Math.floor((lateMs * rate) / 1000)))
}

/** When the next items may be queued, after some have been queued now. By the clock of the database, which all instances share. */
export function nextAtMs(before: number, items: number, rate: number, nowMs: number): number {
  return Math.max(before, nowMs - BURST_MS) + (items * 1000) / rate
}
