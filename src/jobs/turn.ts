/**
 * A turn of a job, which one instance takes for at most TURN_MS:
 *
 * 1. `claimJob` leases the job whose last turn is longest ago. Jobs of different organizations therefore alternate.
 * 2. The step of its kind runs, once or several times. Each of its transactions locks the job, checks that this instance still has
 *    it and that its operator may still do this, changes rows, and stores position and progress. After a kill, what was committed is
 *    not repeated. Only work outside of the transactions is, such as calls of LINE: see step.ts.
 * 3. The last transaction of the turn ends the lease.
 * 4. A step that fails because the database or LINE is down or busy is repeated until it succeeds. For any other reason, the job fails,
 *    at the latest after ATTEMPTS_MAX attempts.
 */
import { UnreadableSecret } from '../config/secret-keys.ts'
import { endDeliveriesOfJob } from '../endpoints/replays.ts'
import { AppError, toFatalError } from '../errors.ts'
import { toJson } from '../ids.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { isAboutStatement } from '../postgres/faults.ts'
import { type Queryable, type Row, statement, type Transactions } from '../postgres/statement.ts'
import { deleteFile, ENDED, type Job, type JobKind } from './job.ts'
import { endAbandonedUploads } from './job-file.ts'
import { ALL_KINDS, STEPS } from './kinds.ts'
import type { Progress, Step } from './step.ts'

/** Other jobs wait this long, plus one transaction. */
const TURN_MS = 250
/** Far longer than a turn, whose statements take 5 s at most. If the instance dies, another one takes the job after that. */
const LEASE_SECONDS = 30
/** After a temporary fault, such as a lock. */
const RETRY_SECONDS = 3
/** Of all instances, without progress between them: at least 100 × 3 s = 5 min, in which an overload ends. */
const ATTEMPTS_MAX = 100

/** The job was cancelled, or another instance has taken it. */
class JobLost extends Error {}

/**
 * A job whose last step is in the future is next: the clock of the database was corrected.
 *
 * $1 seconds of the longest lease int, $2 kinds text[], $3 job id bigint, null: any
 */
const claimNext = statement('claim-job')`
    update job set leased_until = now() + $1 * interval '1 second', claim = claim + 1, stepped_at = clock_timestamp()
     where id = (select id from job
                  where status = 'running' and is_due(leased_until, $1 * interval '1 second') and kind = any ($2)
                    and ($3::bigint is null or id = $3)
                  order by stepped_at <= now() + interval '1 minute', stepped_at limit 1 for no key update skip locked)
    returning id, kind, channel_oa_id as "accountId", organization_id as "organizationId", parameters, position, done, total,
              tally - 'attempts' as tally, claim, actor_kind as "actorKind", operator_id as "operatorId", actor as "actorName",
              request_id as "requestId"`

type ClaimedJob = Job & Row & { claim: bigint }

/** The job is locked first, by its key, with any statistics. $1 job id bigint, $2 claim bigint */
const lockJob = statement('lock-job')`
    with j as materialized (select * from job where id = $1 for no key update)
    select case when j.actor_kind = 'operator' then
             case when o.id is null or o.status <> 'active' then 'operator_disabled'
                  when o.role = 'viewer' then 'operator_demoted'
                  when o.organization_ids is not null and j.organization_id <> all (o.organization_ids) then 'organization_hidden'
             end
           end as "operatorRefusal",
           j.channel_oa_id is not null and a.id is null as "isAccountGone", o.organization_ids as "organizationIds"
      from j
      left join operator o on j.actor_kind = 'operator' and o.id = j.operator_id
      left join official_account a on a.id = j.channel_oa_id and a.organization_id = j.organization_id
     where j.claim = $2 and j.status = 'running'`

type LockedJob = {
  operatorRefusal: string | null
  isAccountGone: boolean
  organizationIds: OrganizationIds
}

/** $1 job id bigint, $2 position jsonb, $3 done bigint, $4 tally jsonb, $5 int: ms until the next turn; null: this one goes on */
const storeProgress = statement('store-job-progress')`
    update job set position = $2, done = $3, tally = $4, stepped_at = clock_timestamp(),
                   leased_until = coalesce(clock_timestamp() + $5::int * interval '1 millisecond', leased_until)
     where id = $1`

/** $1 job id bigint, $2 done bigint, $3 tally jsonb, $4 status text, $5 reason text or null */
const endJob = statement('end-job')`
    update job set status = $4, reason = $5, done = $2, tally = $3, ${ENDED} where id = $1`

/** $1 job id bigint, $2 claim bigint, $3 seconds int, $4 failed attempts int, which the next progress sets to none */
const postponeJob = statement('postpone-job')`
    update job set leased_until = now() + $3 * interval '1 second',
                   tally = tally || jsonb_build_object('attempts', coalesce((tally->>'attempts')::int, 0) + $4::int)
     where id = $1 and claim = $2 and status = 'running'
    returning (tally->>'attempts')::int as attempts`

/** What the steps use. Without `platform`, no job that calls LINE can run. `onQueued` is of the sender in this process. */
export type JobParts = Pick<Step, 'platform' | 'onQueued' | 'erasureLedger'>

interface Turns extends Partial<JobParts> {
  /** tests use shorter ones */
  turnMs?: number
  /** the kinds of one lane */
  kinds?: readonly JobKind[]
  /** null: the job of these kinds that has waited longest */
  jobId?: bigint | null
}

/** Returns false if no job waits, or a temporary fault. Throws any other one. */
export async function takeTurn(
  database: Database,
  { turnMs = TURN_MS, kinds = ALL_KINDS, jobId = null, ...parts }: Turns = {},
): Promise<boolean | AppError> {
  if (kinds.includes('members.import')) await endAbandonedUploads(database)
  const [claimed] = await database.query<ClaimedJob>(claimNext, [LEASE_SECONDS, kinds, jobId])
  if (claimed === undefined) return false
  const turn = new Turn(database, claimed, turnMs, parts)
  try {
    await turn.run()
  } catch (error) {
    if (error instanceof JobLost) return true
    const isTemporary = error instanceof AppError && [429, 503].includes(error.status)
    // Half an account is of no use to anybody, so a removal is repeated, too.
    const isRepeated = isTemporary || claimed.kind === 'account.remove'
    const attempts = isTemporary && !isAboutStatement(error) ? 0 : isRepeated ? 1 : ATTEMPTS_MAX
    const values = [claimed.id, claimed.claim, RETRY_SECONDS, attempts]
    const [job] = await database.query<{ attempts: number }>(postponeJob, values)
    if (job && job.attempts >= ATTEMPTS_MAX) await turn.fail(reasonOf(error))
    if (isTemporary) return error
    throw error
  }
  return true
}

/** A code that the pages explain, or a sentence. */
function reasonOf(error: unknown): string {
  if (error instanceof UnreadableSecret) return 'secret_unreadable'
  if (isAboutStatement(error)) return 'statement_refused'
  return error instanceof AppError ? toFatalError(error).message : 'unexpected_error'
}

class Turn {
  readonly #database: Transactions
  readonly #endsAt: number
  readonly #parts: JobParts
  #job: ClaimedJob
  #isOver = false

  /** The steps of a job share the connections of its account (decision 17). */
  constructor(database: Database, job: ClaimedJob, turnMs: number, parts: Partial<JobParts>) {
    this.#parts = { platform: null, erasureLedger: null, onQueued: () => undefined, ...parts }
    const { accountId, organizationId } = job
    this.#database = accountId === null ? database : database.forTenant({ accountId, organizationId })
    this.#job = job
    this.#endsAt = performance.now() + turnMs
  }

  async run(): Promise<void> {
    // Work outside of `commit` must not begin for an operator who may no longer do it.
    const locked = await this.#database.transaction((transaction) => this.#lock(transaction))
    if (locked === null) return
    const step: Step = {
      ...this.#parts,
      database: this.#database,
      organizationIds: locked.organizationIds,
      commit: (work) => this.#commit(work),
      isOver: () => this.#isOver,
    }
    while (!this.#isOver) await STEPS[this.#job.kind](this.#job, step)
  }

  fail(failure: string): Promise<void> {
    const { done, tally } = this.#job
    return this.#commit(async () => ({ position: null, done, tally, failure }))
  }

  /** Ends the job and returns null if it must not continue. */
  async #lock(transaction: Queryable): Promise<LockedJob | null> {
    const { id, claim } = this.#job
    const [locked] = await transaction.query<LockedJob>(lockJob, [id, claim])
    if (locked === undefined) throw new JobLost()
    const refusal = locked.operatorRefusal ?? (locked.isAccountGone ? 'account_removed' : null)
    if (refusal === null || this.#job.kind === 'account.remove') return locked
    await this.#end(transaction, this.#job, 'cancelled', refusal)
    return null
  }

  async #commit(work: (transaction: Queryable) => Promise<Progress>): Promise<void> {
    const progress = await this.#database.transaction(async (transaction) => {
      if ((await this.#lock(transaction)) === null) return null
      const made = await work(transaction)
      const { position, done, tally, failure = null, resumeInMs = null } = made
      if (failure !== null) await this.#end(transaction, made, 'failed', failure)
      else if (position === null) await this.#end(transaction, made, 'done', null)
      else {
        this.#isOver = resumeInMs !== null || performance.now() >= this.#endsAt
        const pauseMs = this.#isOver ? Math.ceil(resumeInMs ?? 0) : null
        const values = [this.#job.id, toJson(position), done, toJson(tally), pauseMs]
        await transaction.query(storeProgress, values)
      }
      return made
    })
    if (progress === null) return
    const { position, done, tally } = progress
    // The next turn reads it in this form.
    this.#job = { ...this.#job, position: JSON.parse(toJson(position)), done, tally }
  }

  async #end(
    transaction: Queryable,
    { done, tally }: Pick<Progress, 'done' | 'tally'>,
    status: 'done' | 'failed' | 'cancelled',
    reason: string | null,
  ): Promise<void> {
    this.#isOver = true
    const { id } = this.#job
    await transaction.query(endJob, [id, done, toJson(tally), status, reason])
    await transaction.query(deleteFile, [id])
    await endDeliveriesOfJob(transaction, id)
  }
}
