/** Long work as a row: what it is, how it starts, and how operators see and cancel it. turn.ts does the work. See docs/planner.md. */
import { endDeliveriesOfJob } from '../endpoints/replays.ts'
import { AppError, refuseRequest } from '../errors.ts'
import { type AccountId, type OrganizationId, toJson } from '../ids.ts'
import { type Changes, type NewActivity, recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** Jobs of one organization that have not ended. Further ones would only make each of them slower. */
const RUNNING_PER_ORGANIZATION_MAX = 4
/** Jobs that have not ended. Each takes turns of 0.25 s, so with two instances each gets one at least every 4 s. */
const RUNNING_MAX = 32
const INT4_MAX = 2 ** 31 - 1
/** A job of this size takes some minutes. */
const RETRY_AFTER_SECONDS = 60

/** The closed set of kinds. kinds.ts has the step of each. */
export type JobKind =
  | 'account.import_followers'
  | 'account.remove'
  | 'accounts.onboard'
  | 'accounts.change'
  | 'members.erase'
  | 'members.erase_matching'
  | 'members.tag'
  | 'members.import'
  | 'events.retry'
  | 'events.set_aside'
  | 'endpoint.remove'
  | 'endpoint.retry'
  | 'endpoint.replay'
  | 'endpoint.resend'

/** They last for hours, and wait while an endpoint is paused, so they have limits and turns of their own. */
export const REPLAY_KINDS: readonly JobKind[] = ['endpoint.replay', 'endpoint.resend']

/** uploading: the file of an import is not complete */
export type JobStatus = 'uploading' | 'running' | 'done' | 'failed' | 'cancelled'

/** Parameters, position and tally have the form of the kind. */
export interface Job {
  id: bigint
  kind: JobKind
  accountId: AccountId | null
  organizationId: OrganizationId | null
  parameters: unknown
  /** null: the work has not begun */
  position: unknown
  done: bigint
  /** null: unknown */
  total: bigint | null
  tally: unknown
  actorKind: Actor['kind']
  operatorId: bigint | null
  actorName: string
  requestId: string | null
}

/** Who started a job, for the activity log of its steps. */
export const actorOf = (
  { actorKind, operatorId, actorName, requestId }: Job,
  organizationIds: OrganizationIds,
): Actor => ({ kind: actorKind, operatorId, name: actorName, requestId, organizationIds })

export interface NewJob {
  kind: JobKind
  /** null: several accounts */
  accountId: AccountId | null
  /** null: several organizations */
  organizationId: OrganizationId | null
  parameters: Record<string, unknown>
  position?: unknown
  /** null: unknown */
  total: number | bigint | null
  status?: 'uploading' | 'running'
}

/** The organization of a job about several accounts. Null: they belong to several. */
export function soleOrganization(accounts: Array<{ organizationId: OrganizationId }>): OrganizationId | null {
  const [id = null, ...others] = new Set(accounts.map(({ organizationId }) => organizationId))
  return others.length === 0 ? id : null
}

export type JobActivity = Omit<NewActivity, 'organizationId'>

/** Of a job whose steps record what they change. */
export const jobStarted = (kind: JobKind, changes: Changes): JobActivity => ({
  action: 'job.started',
  object: { kind: 'job', id: null },
  changes: { kind, ...changes },
})

/**
 * $1 kind text, $2 account id bigint or null, $3 organization id bigint or null, $4 actor kind text, $5 operator id bigint or null,
 * $6 actor text, $7 request id text or null, $8 parameters jsonb, $9 position jsonb or null, $10 total bigint or null, $11 status text,
 * $12 maximum number of jobs of the organization int, $13 maximum number of jobs int, $14 kinds that are counted apart text[].
 * Uploads, whose files may never arrive, do not keep a removal from its start.
 */
const insertJob = statement('insert-job')`
    with unfinished as materialized (
      select organization_id from job
       where status in ('running', 'uploading') and (kind = any ($14)) = ($1 = any ($14))
         and (status = 'running' or $1 <> 'account.remove'))
    insert into job (kind, channel_oa_id, organization_id, actor_kind, operator_id, actor, request_id, parameters, position, total,
                     status)
    select $1, $2, $3, $4, $5, $6, $7, $8::jsonb, $9::jsonb, $10, $11
     where (select count(*) from unfinished where organization_id is not distinct from $3) < $12
       and (select count(*) from unfinished) < $13
    returning id`

/** A second job of such a kind would only disturb the first one, so it is that one. */
const SINGLE_KINDS: readonly JobKind[] = ['account.remove', 'account.import_followers', 'endpoint.remove']

/** $1 kind text, $2 account id bigint or null, $3 parameters jsonb */
const selectSame = statement('select-same-job')`
    select id from job
     where status = 'running' and kind = $1 and channel_oa_id is not distinct from $2::bigint and parameters = $3::jsonb
     order by id limit 1`

/**
 * Stores a job, and the one row of the activity log for all of it. Call it in a transaction. Instances that start jobs at the same
 * moment may exceed the maximum by their number. A command works on its jobs itself, except for replays, so it has no maximum. Throws
 * `too_many_jobs`.
 * @param activity null: it is recorded later, when an upload is complete
 */
export async function startJob(
  transaction: Queryable,
  actor: Actor,
  job: NewJob,
  activity: JobActivity | null,
): Promise<bigint> {
  const { kind, accountId, organizationId, parameters, position = null, total, status = 'running' } = job
  const [same] = SINGLE_KINDS.includes(kind)
    ? await transaction.query<{ id: bigint }>(selectSame, [kind, accountId, toJson(parameters)])
    : []
  if (same !== undefined) return same.id
  const isLimited = actor.kind !== 'command' || REPLAY_KINDS.includes(kind)
  const limits = isLimited ? [RUNNING_PER_ORGANIZATION_MAX, RUNNING_MAX] : [INT4_MAX, INT4_MAX]
  const [added] = await transaction.query<{ id: bigint }>(insertJob, [
    kind,
    accountId,
    organizationId,
    actor.kind,
    actor.operatorId,
    actor.name,
    actor.requestId,
    toJson(parameters),
    position === null ? null : toJson(position),
    total,
    status,
    ...limits,
    REPLAY_KINDS,
  ])
  if (added === undefined) throw new AppError('too_many_jobs', { retryAfterSeconds: RETRY_AFTER_SECONDS })
  if (activity !== null) {
    const object = activity.object.kind === 'job' ? { kind: 'job' as const, id: added.id } : activity.object
    await recordActivity(transaction, actor, { organizationId, accountId, ...activity, object })
  }
  return added.id
}

export type JobSummary = {
  id: bigint
  kind: JobKind
  accountId: AccountId | null
  accountName: string | null
  organizationId: OrganizationId | null
  actorKind: Actor['kind']
  actor: string
  /** the name of the operator, null: none is stored */
  actorName: string | null
  /** of the parameters; null: they have none, or it was removed */
  endpointName: string | null
  clientName: string | null
  /** without the filters, which may contain personal text, and the settings, which may contain a secret */
  parameters: Record<string, unknown>
  done: bigint
  total: bigint | null
  tally: Record<string, unknown>
  status: JobStatus
  /** why it failed or was cancelled */
  reason: string | null
  createdAt: string
  finishedAt: string | null
}

const COLUMNS = `j.id, j.kind, j.channel_oa_id as "accountId", a.name as "accountName", j.organization_id as "organizationId",
           j.actor_kind as "actorKind", j.actor, p.name as "actorName", e.name as "endpointName", c.name as "clientName",
           j.parameters - 'filters' - 'accountIds' - 'settings' as parameters, j.done, j.total, j.tally, j.status, j.reason,
           iso(j.created_at) as "createdAt", iso(j.finished_at) as "finishedAt"`
const NAMES = `left join lateral (select name from official_account where id = j.channel_oa_id offset 0) a on true
      left join lateral (select name from operator where id = j.operator_id offset 0) p on true
      left join lateral (
        select name from endpoint where id = (j.parameters->>'endpointId')::bigint offset 0) e on true
      left join lateral (
        select coalesce(name, client_id) as name from api_client where id = (j.parameters->>'client')::bigint offset 0) c on true`

/** Of jobs about several organizations, an operator sees those that he or she started. $1 organization ids, null: all; $2 operator id */
const IS_VISIBLE = `(visible(j.organization_id, $1) or (j.organization_id is null and j.operator_id = $2))`

/** $1 and $2 as above; $3 before this id bigint; $4 maximum number of rows int; $5 account id bigint, null: any */
const selectJobs = statement('list-jobs')`
    select ${COLUMNS}
      from (select * from job j
             where ${IS_VISIBLE} and j.id < $3 and ($5::bigint is null or j.channel_oa_id = $5)
             order by j.id desc limit $4) j
      ${NAMES}
     order by j.id desc`

/** $1 and $2 as above */
const selectRunningJobs = statement('list-running-jobs')`
    select ${COLUMNS}
      from (select * from job j where j.status = 'running' and ${IS_VISIBLE} order by j.id desc limit 100) j
      ${NAMES}
     order by j.id desc`

/** $1 and $2 as above; $3 job id bigint */
const selectJob = statement('select-job')`
    select ${COLUMNS} from job j ${NAMES} where j.id = $3 and ${IS_VISIBLE}`

export function listJobs(
  database: Queryable,
  { organizationIds, operatorId }: Actor,
  { beforeId, limit, accountId = null }: { beforeId: bigint; limit: number; accountId?: AccountId | null },
): Promise<JobSummary[]> {
  return database.query(selectJobs, [organizationIds, operatorId, beforeId, limit, accountId])
}

/** At most 100: the limits of startJob allow fewer, but for commands. */
export const listRunningJobs = (
  database: Queryable,
  { organizationIds, operatorId }: Actor,
): Promise<JobSummary[]> => database.query(selectRunningJobs, [organizationIds, operatorId])

/** Null if the actor does not see it. */
export async function findJob(
  database: Queryable,
  { organizationIds, operatorId }: Actor,
  id: bigint,
): Promise<JobSummary | null> {
  const [job] = await database.query<JobSummary>(selectJob, [organizationIds, operatorId, id])
  return job ?? null
}

const selectSinceStep = statement('select-seconds-since-step')`
    select extract(epoch from clock_timestamp() - stepped_at)::float8 as seconds from job where id = $1`

/** Since an instance worked on the job. */
export async function secondsSinceStep(database: Queryable, id: bigint): Promise<number> {
  const [row] = await database.query<{ seconds: number }>(selectSinceStep, [id])
  return row?.seconds ?? 0
}

/** The end of a job deletes what may be personal or secret. */
export const ENDED = `position = null, parameters = parameters - 'filters' - 'settings', finished_at = clock_timestamp(),
           leased_until = '-infinity'`

/** $1 and $2 as above; $3 job id bigint. Waits for the transaction of a step. */
const cancelRunning = statement('cancel-job')`
    update job j set status = 'cancelled', reason = 'cancelled', ${ENDED}
     where j.id = $3 and j.status in ('running', 'uploading') and ${IS_VISIBLE}
    returning j.kind`

const REMOVAL_GOES_ON =
  'The removal of an account cannot be cancelled, because its credentials are already deleted. Wait for its end.'

export const deleteFile = statement('delete-job-file')`delete from job_file where job_id = $1`

/** Call it in a transaction. What the steps have changed stays. Returns false if the job has ended. Throws `invalid_input` for a removal. */
export async function cancelJob(transaction: Queryable, actor: Actor, id: bigint): Promise<boolean> {
  const { organizationIds, operatorId } = actor
  const [job] = await transaction.query<Pick<Job, 'kind'>>(cancelRunning, [organizationIds, operatorId, id])
  if (job === undefined) return false
  // The transaction takes the change back.
  if (job.kind === 'account.remove') refuseRequest(REMOVAL_GOES_ON)
  await transaction.query(deleteFile, [id])
  await endDeliveriesOfJob(transaction, id)
  return true
}
