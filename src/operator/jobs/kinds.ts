/** The step of each kind of job. A kind without one does not compile. */

import { importFollowersOf } from './import-followers.ts'
import { importMembers } from './import-members.ts'
import type { JobKind } from './job.ts'
import { onboardAccounts } from './onboard-accounts.ts'
import { removeAccountRows } from './remove-account.ts'
import { resumeEndpoint } from './resume-endpoint.ts'
import { retryEndpoint } from './retry-endpoint.ts'
import { retryEvents } from './retry-events.ts'
import type { RunStep } from './step.ts'
import { tagMembers } from './tag-members.ts'

export const STEPS: Record<JobKind, RunStep> = {
  'account.import_followers': importFollowersOf,
  'account.remove': removeAccountRows,
  'accounts.onboard': onboardAccounts,
  'members.tag': tagMembers,
  'members.import': importMembers,
  'events.retry': retryEvents,
  'endpoint.retry': retryEndpoint,
  'endpoint.resume': resumeEndpoint,
}
