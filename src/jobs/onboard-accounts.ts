/**
 * `accounts.onboard`: brings accounts into service on the platform, one account in each step.
 *
 * 1. The webhook URLs of all accounts are set. LINE applies each within a minute.
 * 2. Each account is tested and verified, and its followers are imported page by page.
 *
 * Each step can be repeated: what an earlier run has completed is skipped.
 */
import { type Account, findAccount } from '../accounts/account.ts'
import { type ImportProgress, isImportCompleted } from '../audience/import/import-followers.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError, FatalError } from '../errors.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { actorOf, type Job, jobStarted, soleOrganization, startJob } from './job.ts'
import { findWebhook, importPage, type Onboarding, onboard, pointWebhookHere } from './onboard.ts'
import { addCounts, platformOf, type RunStep, type Step } from './step.ts'

/** Problems in the row of the job. The fleet shows those of all accounts. */
const PROBLEMS_MAX = 100
const PROPAGATION_MAX_MS = 75_000
const PROPAGATION_PAUSE_MS = 1_000

interface Parameters {
  accountIds: string[]
  setsWebhook: boolean
}

interface Position {
  phase: 'webhook' | 'verify' | 'followers'
  index: number
  setAtMs: number
}

export interface OnboardingTally {
  verified: number
  followersAdded: number
  problemCount: number
  problems: Array<{ accountId: string; problem: string }>
}

export function startOnboarding(
  transaction: Queryable,
  actor: Actor,
  accounts: Array<{ id: AccountId; organizationId: OrganizationId }>,
  setsWebhook: boolean,
): Promise<bigint> {
  const parameters = { accountIds: accounts.map(({ id }) => String(id)), setsWebhook }
  const kind = 'accounts.onboard'
  const organizationId = soleOrganization(accounts)
  const job = { kind, accountId: null, organizationId, parameters, total: accounts.length } as const
  return startJob(transaction, actor, job, jobStarted(kind, { accounts: accounts.length, setsWebhook }))
}

export const onboardAccounts: RunStep = async (job, step) => {
  const { accountIds, setsWebhook } = job.parameters as Parameters
  const first: Position = { phase: setsWebhook ? 'webhook' : 'verify', index: 0, setAtMs: 0 }
  const position = (job.position as Position | null) ?? first
  const { [position.index]: id } = accountIds
  if (id === undefined) return advance(job, step, position, {})
  const isDone = position.phase !== 'webhook'
  try {
    const account = await findAccount(step.database, BigInt(id))
    const isHidden = account !== null && step.organizationIds?.includes(account.organizationId) === false
    // It was removed meanwhile, or the operator has lost its organization.
    if (account === null || isHidden) return await advance(job, step, next(position), { isDone })
    await PHASES[position.phase](job, step, position, account)
  } catch (error) {
    if (!(error instanceof FatalError || error instanceof UnreadableSecret)) throw error
    // The second pass reports a problem of the first one.
    const result = isDone ? { problem: { accountId: id, problem: error.message }, isDone } : {}
    await advance(job, step, next(position), result)
  }
}

const next = ({ phase, index, setAtMs }: Position): Position => ({
  phase: phase === 'webhook' ? 'webhook' : 'verify',
  index: index + 1,
  setAtMs,
})

type Phase = (job: Job, step: Step, position: Position, account: Account) => Promise<void>

/** Each throws a FatalError for a problem of the account. */
const PHASES: Record<Position['phase'], Phase> = {
  webhook: async (job, step, position, account) => {
    const isSet = await pointWebhookHere(onboardingOf(job, step), account).then(
      (webhook) => webhook.isSet,
      (error: unknown) => {
        // The second pass reports that LINE did not respond.
        if (error instanceof AppError) return false
        throw error
      },
    )
    const setAtMs = isSet ? Date.now() : position.setAtMs
    await advance(job, step, { ...next(position), setAtMs }, {})
  },

  verify: async (job, step, position, account) => {
    const onboarding = onboardingOf(job, step)
    if (onboarding.setsWebhook && Date.now() < position.setAtMs + PROPAGATION_MAX_MS) {
      const isHere = await findWebhook(onboarding, account).then(
        (current) => current.isHere,
        () => true,
      )
      if (!isHere) return advance(job, step, position, { resumeInMs: PROPAGATION_PAUSE_MS })
    }
    const { problem, verification } = await onboard(onboarding, account)
    const added = { verified: verification?.verified ? 1 : 0 }
    if (problem !== null) {
      const found = { accountId: String(account.id), problem }
      return advance(job, step, next(position), { ...added, problem: found, isDone: true })
    }
    const hasFollowers = verification?.accountType === 'verified_or_premium'
    if (!hasFollowers || (await isImportCompleted(step.database, account.id)))
      return advance(job, step, next(position), { ...added, isDone: true })
    await advance(job, step, { ...position, phase: 'followers' }, added)
  },

  followers: async (job, step, position, account) => {
    const page = await importPage(onboardingOf(job, step), account)
    if (!page.isComplete) return advance(job, step, position, {})
    await advance(job, step, next(position), { followersAdded: page.added, isDone: true })
  },
}

interface Result {
  verified?: number
  followersAdded?: number
  problem?: OnboardingTally['problems'][number]
  isDone?: boolean
  resumeInMs?: number
}

function advance(
  job: Job,
  { commit }: Step,
  position: Position,
  { verified = 0, followersAdded = 0, problem, isDone = false, ...pause }: Result,
): Promise<void> {
  const { accountIds } = job.parameters as Parameters
  const isAtEnd = position.index >= accountIds.length
  const second: Position | null =
    position.phase === 'webhook' ? { ...position, phase: 'verify', index: 0 } : null
  const { problems: before = [] } = job.tally as Partial<OnboardingTally>
  const problems = problem === undefined ? before : [...before, problem].slice(0, PROBLEMS_MAX)
  const counts = { verified, followersAdded, problemCount: problem === undefined ? 0 : 1 }
  const tally: OnboardingTally = { ...addCounts(job.tally, counts), problems }
  const done = job.done + (isDone ? 1n : 0n)
  return commit(async () => ({ position: isAtEnd ? second : position, done, tally, ...pause }))
}

function onboardingOf(job: Job, step: Step): Onboarding {
  const { setsWebhook } = job.parameters as Parameters
  const actor = actorOf(job, step.organizationIds)
  return { ...platformOf(step), database: step.database, actor, setsWebhook }
}

// `account.import_followers`: imports LINE's list of followers, one page in each step.

/** The last page is recorded as `account.followers_imported`. */
export function startFollowersImport(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Pick<Account, 'id' | 'organizationId'>,
): Promise<bigint> {
  const kind = 'account.import_followers'
  const job = { kind, accountId, organizationId, parameters: {}, total: null } as const
  return startJob(transaction, actor, job, {
    action: 'job.started',
    object: { kind: 'account', id: accountId },
    changes: { kind },
  })
}

export const importFollowersOf: RunStep = async (job, step) => {
  const { accountId } = job
  const account = accountId === null ? null : await findAccount(step.database, accountId)
  // The next commit finds that the account is gone.
  if (account === null) return step.commit(async () => ({ position: {}, done: job.done, tally: job.tally }))
  try {
    const actor = actorOf(job, step.organizationIds)
    const { lineApi } = platformOf(step)
    const page = await importPage({ database: step.database, lineApi, actor }, account)
    const { isComplete, seen, added, skipped } = page
    const position = isComplete ? null : {}
    await step.commit(async () => ({ position, done: BigInt(seen), tally: { added, skipped } }))
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    const tally = { ...(job.tally as ImportProgress), problem: error.message }
    await step.commit(async () => ({ position: null, done: job.done, tally, failure: 'refused_by_line' }))
  }
}
