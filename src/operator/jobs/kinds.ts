/** The step of each kind of job. A kind without one does not compile. */
import { importMembers } from './import-members.ts'
import type { JobKind } from './job.ts'
import { resumeEndpoint } from './resume-endpoint.ts'
import { retryEndpoint } from './retry-endpoint.ts'
import { retryEvents } from './retry-events.ts'
import type { RunStep } from './step.ts'
import { tagMembers } from './tag-members.ts'

export const STEPS: Record<JobKind, RunStep> = {
  'members.tag': tagMembers,
  'members.import': importMembers,
  'events.retry': retryEvents,
  'endpoint.retry': retryEndpoint,
  'endpoint.resume': resumeEndpoint,
}
