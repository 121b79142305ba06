/** The runner of jobs as in a process of the service, and what operators do with jobs. */
import { JobRunner } from '../../src/background/jobs.ts'
import type { JobSummary } from '../../src/operator/jobs/job.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import type { Operator } from './console.ts'
import { eventually } from './process.ts'

/** It is stopped with its test or file. */
export function startJobRunner(database: TextDatabase): JobRunner {
  const log = { error: () => undefined } as unknown as ConstructorParameters<typeof JobRunner>[1]
  const runner = new JobRunner(database, log)
  runner.start()
  atEnd(() => runner.stop())
  return runner
}

export type JobAsJson = {
  [Name in keyof JobSummary]: JobSummary[Name] extends bigint ? string : JobSummary[Name]
}

/** Resolves with the job when it has ended. */
export async function endOf(operator: Operator, job: { id: string }): Promise<JobAsJson> {
  const { json } = await eventually(
    () => operator.get(`/api/jobs/${job.id}`),
    ({ json }) => json.job.finishedAt !== null,
  )
  return json.job
}
