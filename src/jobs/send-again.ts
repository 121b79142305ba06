/**
 * `endpoint.replay` sends the stored events of a time range to a `line` endpoint again, `endpoint.resend` the present state of all
 * members that match a filter to a `members` endpoint. `endpoint.retry` makes the permanently failed deliveries of an endpoint due,
 * and `endpoint.remove` deletes it with its backlog.
 *
 * 1. A transaction queues the next events or members and stores the position behind them. So a kill repeats nothing.
 * 2. The sender sends them like all deliveries. A replay waits meanwhile, so requests arrive in the order of the events.
 * 3. When the endpoint has accepted them, their rows are gone, and the next ones are queued.
 */
import type { Filters } from '../audience/filters.ts'
import { ROWS_PER_STATEMENT, removeEndpointBatch, retryFailedBatch } from '../endpoints/manage.ts'
import { DOWN_STATUSES } from '../endpoints/post.ts'
import {
  beforeEventsAt,
  queueEvents,
  queueMembers,
  type ReplayableEndpoint,
  type ReplayRequest,
} from '../endpoints/replays.ts'
import { AppError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import { int8Array } from '../postgres/binary-array.ts'
import { pipelineIn, type Queryable, type Row, statement } from '../postgres/statement.ts'
import { type Job, type JobActivity, type NewJob, REPLAY_KINDS, startJob } from './job.ts'
import { BEGINNING, readSelected, type Selection, selectMembers } from './selection.ts'
import type { Progress, RunStep, Step } from './step.ts'

/** Requests per second of a replay. More events per second make larger requests. */
const REQUESTS_PER_SECOND = 10
/** LINE itself sends at most 100 events per request. */
const ITEMS_PER_REQUEST_MAX = 100
/** As much as five requests of LINE with long messages. The endpoint's limit is unknown: Express accepts 100 KB by default, Rails 10 MB. */
const BYTES_PER_REQUEST_MAX = 512 * 1024
/** Events that one statement examines in addition to twice those of a request: some are of other sources, or erased. */
const EXAMINED_MIN = 100
/** Unsent deliveries of a resend. Live changes of the endpoint wait behind them. */
const WAITING_MIN = 100
/** A job that was delayed catches up with one second's worth at most. */
const BURST_MS = 1_000
/** A job looks again after this time while a request is in flight, which takes milliseconds or seconds. */
const WAIT_MS = 50
/** A job looks again after this time while its endpoint is paused or its deliveries wait between retries. */
const LONG_WAIT_MS = 3_000

type EndpointOfJob = Pick<ReplayableEndpoint, 'id' | 'accountId' | 'organizationId'>

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

/** $1 endpoint id bigint. Two starts take turns. */
const lockEndpoint = statement('lock-replayed-endpoint')`
    select id from endpoint where id = $1 for no key update`

/** $1 endpoint id text, $2 kinds text[] */
const selectRunning = statement('select-running-replay')`
    select id from job where status = 'running' and kind = any ($2) and parameters ->> 'endpointId' = $1 limit 1`

/** Two replays of an endpoint would mix the order of their events. */
async function requireNoReplay(transaction: Queryable, endpointId: bigint): Promise<void> {
  await transaction.query(lockEndpoint, [endpointId])
  const [running] = await transaction.query<{ id: bigint }>(selectRunning, [String(endpointId), REPLAY_KINDS])
  if (running === undefined) return
  const message = `Job ${running.id} sends to endpoint ${endpointId} again and has not ended. Wait for its end or cancel it, then try again.`
  throw new AppError('replay_running', { message })
}

export const replayEvents: RunStep = (job, step) => {
  const { endpointId, from, to, events, rate } = job.parameters as ReplayRequest & { endpointId: string }
  return sendPaced(job, step, {
    // Until 0.5.0, instances of 0.3.0 may continue the job. They read `sending`, and `queued` of a resend.
    start: { after: beforeEventsAt(from), sending: 0 },
    waitingMax: 1,
    queueNext: async (transaction, { after }, { nowMs }, dueMs) => {
      // More than usual if the last request took longer than its share of a second.
      const late = Math.floor((Math.min(BURST_MS, nowMs - dueMs) * rate) / 1000)
      const maxEvents = Math.min(ITEMS_PER_REQUEST_MAX, Math.max(itemsPerRequest(rate), late))
      const position = [after.receivedAt, after.id, to, events, endpointId]
      const limits = [2 * maxEvents + EXAMINED_MIN, maxEvents, BYTES_PER_REQUEST_MAX]
      const values = [job.accountId, ...position, ...limits, job.id]
      const [row] = await transaction.query<QueuedEvents>(queueEvents, values)
      const { queued, isLast, receivedAt, id } = row as QueuedEvents
      const next = receivedAt === null || id === null ? after : { receivedAt, id }
      return { queued, position: { after: next, sending: 0 }, isEnd: isLast }
    },
  })
}

/** Nulls: no event was examined. */
type QueuedEvents = { queued: number; isLast: boolean; receivedAt: string | null; id: string | null }

/** The walk is by id, as for `members.tag`: the members that existed at the start and match when their page is read. */
export const resendMembers: RunStep = (job, step) => {
  const { endpointId, rate } = job.parameters as Selection & { endpointId: string; rate: number }
  return sendPaced(job, step, {
    start: { ...BEGINNING, isEnd: false, queued: 0 },
    waitingMax: Math.max(WAITING_MIN, rate),
    queueNext: async (transaction, before) => {
      if (before.isEnd) return { queued: 0, position: before, isEnd: true }
      const { ids, position } = await readSelected(transaction, job, itemsPerRequest(rate))
      if (ids.length > 0)
        await transaction.query(queueMembers, [job.accountId, endpointId, job.id, int8Array(ids)])
      const isEnd = position === null
      const queued = before.queued + ids.length
      return { queued: ids.length, position: { ...(position ?? before), isEnd, queued }, isEnd }
    },
  })
}

const itemsPerRequest = (rate: number): number =>
  Math.min(ITEMS_PER_REQUEST_MAX, Math.max(1, Math.round(rate / REQUESTS_PER_SECOND)))

/** An endpoint that refuses a request five times probably never accepts it, and what follows must not wait for it forever. */
const REFUSALS_MAX = 5

/**
 * Leaves refused deliveries as failed ones, which operators see and retry. `attempts` of these rows begins with 1. The index of due
 * deliveries has the condition "failed_at is null", which must not lead to it. 410 pauses the endpoint instead.
 *
 * $1 job id bigint, $2 maximum number of refusals int
 */
const leaveRefused = statement('leave-refused-deliveries')`
    with refused as (
      update endpoint_delivery set failed_at = now(), job_id = null
       where job_id = $1 and coalesce(failed_at, 'infinity') = 'infinity' and is_due(leased_until, interval '30 seconds') and attempts > $2
         and status <> all ('{410,${DOWN_STATUSES.join()}}')
      returning coalesce(cardinality(event_ids), 1) as items
    )
    select coalesce(sum(items), 0)::int as refused from refused`

const selectState = statement('select-replay-state')`
    select p.status, d.waiting, d."hasFailed", d."isRetrying",
           (extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs"
      from endpoint p
     cross join lateral (
       select count(*) filter (where failed_at is null)::int as waiting,
              coalesce(bool_or(failed_at is not null), false) as "hasFailed",
              coalesce(bool_or(answer is not null), false) as "isRetrying"
         from endpoint_delivery where job_id = $1) d
     where p.id = $2`

type State = {
  /** of the endpoint */
  status: string
  waiting: number
  /** A delivery has failed permanently. */
  hasFailed: boolean
  /** An unsent delivery was refused, or got no response. */
  isRetrying: boolean
  /** by the clock of the database, which all instances share */
  nowMs: number
}

interface Paced<Position> {
  start: Position
  /** unsent deliveries at which the job waits */
  waitingMax: number
  /** @param dueMs when these items were to be queued */
  queueNext: (
    transaction: Queryable,
    position: Position,
    state: State,
    dueMs: number,
  ) => Promise<{ queued: number; position: Position; isEnd: boolean }>
}

/** Queues the next events or members, unless it is too early, or the endpoint has not accepted the earlier ones. */
async function sendPaced<Position extends object>(
  job: Job,
  { commit, onQueued }: Step,
  { start, waitingMax, queueNext }: Paced<Position>,
): Promise<void> {
  const { done, id, parameters, tally: before } = job
  const { endpointId, rate } = parameters as { endpointId: string; rate: number }
  await commit(async (transaction): Promise<Progress> => {
    const [[left], [found]] = (await pipelineIn(transaction)([
      { statement: leaveRefused, values: [id, REFUSALS_MAX] },
      { statement: selectState, values: [id, endpointId] },
    ])) as [Row[], Row[]]
    if (found === undefined) return { position: null, done, tally: before, failure: 'endpoint_removed' }
    const state = found as State
    const { status, hasFailed, isRetrying, nowMs } = state
    const stored = { ...start, nextMs: nowMs, ...(job.position as Position | null) }
    // `refused` counts events or members, and `waiting` says why the job does not go on.
    const waiting = status !== 'active' ? 'paused' : isRetrying ? 'receiver' : null
    const refused = Number((before as { refused?: number }).refused ?? 0) + Number(left?.refused ?? 0)
    const tally = { refused, waiting }
    if (hasFailed) return { position: null, done, tally, failure: 'receiver_failed' }
    const waitMs = waiting === null ? WAIT_MS : LONG_WAIT_MS
    if (waiting === 'paused' || state.waiting >= waitingMax)
      return { position: stored, done, tally, resumeInMs: waitMs }
    // A job waits for seconds at most: a later time was stored while the clock of the database was ahead.
    const dueMs = stored.nextMs > nowMs + LONG_WAIT_MS ? nowMs : stored.nextMs
    if (dueMs > nowMs) return { position: stored, done, tally, resumeInMs: dueMs - nowMs }
    const { queued, isEnd, position } = await queueNext(transaction, stored, state, dueMs)
    if (isEnd && queued === 0 && state.waiting === 0) return { position: null, done, tally }
    const nextMs = Math.max(dueMs, nowMs - BURST_MS) + (queued * 1000) / rate
    // After an empty page, the job does not wait: another page follows.
    const resumeInMs = isEnd ? waitMs : Math.max(WAIT_MS, nextMs - nowMs)
    const next = { position: { ...position, nextMs }, done: done + BigInt(queued), tally }
    return queued > 0 || isEnd ? { ...next, resumeInMs } : next
  })
  onQueued(BigInt(endpointId))
}

/** Repeats a change of some deliveries of an endpoint. */
const inBatches =
  (change: typeof retryFailedBatch): RunStep =>
  async ({ parameters, done: before }, { commit }) => {
    const { endpointId } = parameters as { endpointId: string }
    await commit(async (transaction) => {
      const count = await change(transaction, BigInt(endpointId))
      return { position: count < ROWS_PER_STATEMENT ? null : {}, done: before + BigInt(count), tally: {} }
    })
  }

export const retryEndpoint = inBatches(retryFailedBatch)
export const removeEndpoint = inBatches(removeEndpointBatch)
