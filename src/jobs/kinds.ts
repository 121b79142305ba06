/** The step of each kind of job. A kind without one does not compile. */
import { changeAccounts } from './change-accounts.ts'
import { eraseMatching, eraseMemberships } from './erase-members.ts'
import { importMembers } from './import-members.ts'
import { type JobKind, REPLAY_KINDS } from './job.ts'
import { importFollowersOf, onboardAccounts } from './onboard-accounts.ts'
import { removeAccountRows } from './remove-account.ts'
import { retryFailedEvents, setFailedEventsAside } from './retry-events.ts'
import { removeEndpoint, replayEvents, resendMembers, retryEndpoint } from './send-again.ts'
import type { RunStep } from './step.ts'
import { tagMembers } from './tag-members.ts'

export const STEPS: Record<JobKind, RunStep> = {
  'account.import_followers': importFollowersOf,
  'account.remove': removeAccountRows,
  'accounts.onboard': onboardAccounts,
  'accounts.change': changeAccounts,
  'members.erase': eraseMemberships,
  'members.erase_matching': eraseMatching,
  'members.tag': tagMembers,
  'members.import': importMembers,
  'events.retry': retryFailedEvents,
  'events.set_aside': setFailedEventsAside,
  'endpoint.remove': removeEndpoint,
  'endpoint.retry': retryEndpoint,
  'endpoint.replay': replayEvents,
  'endpoint.resend': resendMembers,
}

const CALLS_LINE: readonly JobKind[] = ['account.import_followers', 'accounts.onboard', 'accounts.change']

/**
 * Kinds that take turns with each other alone: a step that calls LINE takes up to 8 s, and a replay takes ten short turns per second.
 * A kind that only a newer release knows is in no lane, so it is left to that release.
 */
export const LANES: readonly JobKind[][] = [
  (Object.keys(STEPS) as JobKind[]).filter((kind) => ![...CALLS_LINE, ...REPLAY_KINDS].includes(kind)),
  [...CALLS_LINE],
  [...REPLAY_KINDS],
]
export const ALL_KINDS: JobKind[] = LANES.flat()
/** Kinds that a command works on itself, because they queue no deliveries. */
export const COMMAND_KINDS = ALL_KINDS.filter((kind) => !REPLAY_KINDS.includes(kind))
