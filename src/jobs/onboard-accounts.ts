/**
 * `accounts.onboard`: brings accounts into service on the platform, one account in each step.
 *
 * 1. The webhook URLs of all accounts are set. LINE applies each within a minute.
 * 2. Each account is tested and verified, and its followers are imported page by page.
 *
 * Each step can be repeated: what an earlier run has completed is skipped.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Account, type AccountId, findAccountOn, type OrganizationId } from '../accounts/account.ts'
import { importPage, type Onboarding, onboard } from '../accounts/onboard.ts'
import { findWebhook, pointWebhookHere } from '../accounts/point-webhook.ts'
import { isImportCompleted } from '../audience/import/import-followers.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError, FatalError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { platformOf } from './import-followers.ts'
import { actorOf, type Job, startJob } from './job.ts'
import type { RunStep, Step } from './step.ts'

/** Problems in the row of the job. The fleet shows those of all accounts. */
const PROBLEMS_MAX = 100
/** LINE applies a new webhook URL within a minute. */
const PROPAGATION_MAX_MS = 75_000
/** While LINE has not applied a URL, other jobs wait this long. */
const PROPAGATION_PAUSE_MS = 1_000

interface Parameters {
  accountIds: string[]
  setsWebhook: boolean
}

interface Position {
  phase: 'webhook' | 'verify' | 'followers'
  index: number
  /** when the last webhook URL was set */
  setAtMs: number
}

export interface OnboardingTally {
  verified: number
  followersAdded: number
  problemCount: number
  problems: Array<{ accountId: string; problem: string }>
}

const NOTHING: OnboardingTally = { verified: 0, followersAdded: 0, problemCount: 0, problems: [] }

/** @param accounts that the actor sees */
export function startOnboarding(
  transaction: Queryable,
  actor: Actor,
  accounts: Array<{ id: AccountId; organizationId: OrganizationId }>,
  setsWebhook: boolean,
): Promise<bigint> {
  const organizationIds = new Set(accounts.map(({ organizationId }) => organizationId))
  const [organizationId = null] = organizationIds.size === 1 ? organizationIds : []
  const parameters = { accountIds: accounts.map(({ id }) => String(id)), setsWebhook }
  const kind = 'accounts.onboard'
  const job = { kind, accountId: null, organizationId, parameters, total: accounts.length } as const
  return startJob(transaction, actor, job, {
    action: 'job.started',
    object: { kind: 'job', id: null },
    changes: { kind, accounts: accounts.length, setsWebhook },
  })
}

export const onboardAccounts: RunStep = async (job, step) => {
  const { accountIds, setsWebhook } = job.parameters as Parameters
  const first: Position = { phase: setsWebhook ? 'webhook' : 'verify', index: 0, setAtMs: 0 }
  const position = (job.position as Position | null) ?? first
  const { [position.index]: id } = accountIds
  if (id === undefined) return advance(job, step, position, {})
  const account = await findAccountOn(step.database, BigInt(id)).catch((error) => {
    if (error instanceof UnreadableSecret) return error
    throw error
  })
  if (account instanceof UnreadableSecret) {
    const isDone = position.phase !== 'webhook'
    return advance(
      job,
      step,
      next(position),
      isDone ? { problem: { accountId: id, problem: account.message }, isDone } : {},
    )
  }
  const isHidden = account !== null && step.organizationIds?.includes(account.organizationId) === false
  // Removed meanwhile, or its organization is no longer the operator's.
  if (account === null || isHidden)
    return advance(job, step, next(position), { isDone: position.phase !== 'webhook' })
  switch (position.phase) {
    case 'webhook':
      return setWebhook(job, step, position, account)
    case 'verify':
      return verify(job, step, position, account)
    case 'followers':
      return addFollowers(job, step, position, account)
  }
}

const next = ({ phase, index, setAtMs }: Position): Position => ({
  phase: phase === 'webhook' ? 'webhook' : 'verify',
  index: index + 1,
  setAtMs,
})

/** The second pass reports what prevents it. */
async function setWebhook(job: Job, step: Step, position: Position, account: Account): Promise<void> {
  const isSet = await pointWebhookHere(onboardingOf(job, step), account).then(
    (webhook) => webhook.isSet,
    (error: unknown) => {
      if (error instanceof AppError) return false
      throw error
    },
  )
  const setAtMs = isSet ? Date.now() : position.setAtMs
  await advance(job, step, { ...next(position), setAtMs }, {})
}

async function verify(job: Job, step: Step, position: Position, account: Account): Promise<void> {
  const onboarding = onboardingOf(job, step)
  if (onboarding.setsWebhook && Date.now() < position.setAtMs + PROPAGATION_MAX_MS) {
    const isHere = await findWebhook(onboarding, account).then(
      (current) => current.isHere,
      () => true,
    )
    if (!isHere) {
      await sleep(PROPAGATION_PAUSE_MS)
      return advance(job, step, position, {})
    }
  }
  const { problem, verification } = await onboard(onboarding, account)
  const added = { verified: verification?.verified ? 1 : 0 }
  if (problem !== null)
    return advance(job, step, next(position), {
      added,
      problem: { accountId: String(account.id), problem },
      isDone: true,
    })
  const hasFollowers = verification?.accountType === 'verified_or_premium'
  if (!hasFollowers || (await isImportCompleted(step.database, account.id)))
    return advance(job, step, next(position), { added, isDone: true })
  await advance(job, step, { ...position, phase: 'followers' }, { added })
}

async function addFollowers(job: Job, step: Step, position: Position, account: Account): Promise<void> {
  try {
    const page = await importPage(onboardingOf(job, step), account)
    if (!page.isComplete) return await advance(job, step, position, {})
    await advance(job, step, next(position), { added: { followersAdded: page.added }, isDone: true })
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    const problem = { accountId: String(account.id), problem: error.message }
    await advance(job, step, next(position), { problem, isDone: true })
  }
}

interface Result {
  added?: Partial<Pick<OnboardingTally, 'verified' | 'followersAdded'>>
  problem?: OnboardingTally['problems'][number]
  isDone?: boolean
}

function advance(
  job: Job,
  { commit }: Step,
  position: Position,
  { added = {}, problem, isDone }: Result,
): Promise<void> {
  const { accountIds } = job.parameters as Parameters
  const before = { ...NOTHING, ...(job.tally as Partial<OnboardingTally>) }
  const isAtEnd = position.index >= accountIds.length
  const after: Position | null =
    isAtEnd && position.phase === 'webhook'
      ? { ...position, phase: 'verify', index: 0 }
      : isAtEnd
        ? null
        : position
  const problems = problem === undefined ? [] : [problem]
  const tally: OnboardingTally = {
    verified: before.verified + (added.verified ?? 0),
    followersAdded: before.followersAdded + (added.followersAdded ?? 0),
    problemCount: before.problemCount + problems.length,
    problems: [...before.problems, ...problems].slice(0, PROBLEMS_MAX),
  }
  return commit(async () => ({ position: after, done: job.done + (isDone ? 1n : 0n), tally }))
}

function onboardingOf(job: Job, step: Step): Onboarding {
  const { setsWebhook } = job.parameters as Parameters
  const actor = actorOf(job, step.organizationIds)
  return { ...platformOf(step), database: step.database, actor, setsWebhook }
}
