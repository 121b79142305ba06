/** The runner of jobs as in a process of the service, and what operators do with jobs. */
import { afterEach } from 'vitest'
import type { JobSummary } from '../../src/jobs/job.ts'
import { JobRunner } from '../../src/jobs/runner.ts'
import type { Platform, Step } from '../../src/jobs/step.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { atEnd } from './at-end.ts'
import type { Operator } from './console.ts'
import { load } from './load.ts'
import { eventually } from './process.ts'
import { type Answer, readAnswer } from './service.ts'

/**
 * It is stopped with its test or file.
 * @param platform required by jobs that call LINE
 * @param onQueued of a sender in the same process
 */
export function startJobRunner(
  database: TextDatabase,
  platform: Platform | null = null,
  onQueued: Step['onQueued'] = () => undefined,
): JobRunner {
  const log = { error: () => undefined } as unknown as ConstructorParameters<typeof JobRunner>[1]
  const runner = new JobRunner(database, log, { platform, onQueued })
  runner.start()
  atEnd(() => runner.stop())
  return runner
}

/** Takes turns until no job waits for one. */
export async function finishJobs(database: TextDatabase, parts?: Parameters<typeof takeTurn>[1]) {
  while (await takeTurn(database, parts));
}

/** Lets the time pass until which jobs wait, or a process that has died keeps them. */
export const endWaitsOfJobs = (database: TextDatabase) =>
  load(database, `update job set leased_until = '-infinity' where status = 'running'`)

/** A turn of one transaction. */
export const takeShortTurn = (database: TextDatabase) => takeTurn(database, { turnMs: 0 })

/** Leaves the next test of the file no job. */
export const endJobsAfterEach = (database: TextDatabase) =>
  afterEach(() =>
    database.query(`update job set status = 'done', finished_at = now() where finished_at is null`),
  )

type JobAsJson = {
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

/** Uploads a file as the page does, in pieces of `pieceBytes`, and resolves with the job, which has then begun. */
export async function uploadFile(
  operator: Operator,
  { accountId }: { accountId: bigint },
  format: 'csv' | 'ndjson',
  file: string | Buffer,
  pieceBytes = 512 * 1024,
): Promise<{ id: string }> {
  const bytes = Buffer.from(file)
  const path = `/api/accounts/${accountId}/import-members`
  const { json } = await operator.post(path, { format, size: bytes.length })
  for (let position = 0; position < bytes.length; position += pieceBytes)
    await sendPiece(operator, json.job.id, position, bytes.subarray(position, position + pieceBytes))
  return json.job
}

export async function sendPiece(
  { url, headers }: Operator,
  id: string,
  position: number,
  bytes: Buffer,
): Promise<Answer> {
  const path = `/api/jobs/${id}/file?position=${position}`
  return readAnswer(await fetch(url + path, { method: 'POST', headers, body: new Uint8Array(bytes) }))
}
