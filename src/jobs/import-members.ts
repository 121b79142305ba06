/**
 * `members.import`: an uploaded file of externalIds, tags and attributes of existing members.
 *
 * 1. The console or the command stores a job in the state `uploading`, and then the file in pieces (job-file.ts).
 * 2. The last piece starts the job. Each batch of entries is one transaction, which also stores the position in the file, and deletes
 *    the pieces before it.
 *
 * An import only changes members. A person who is erased meanwhile does not come back: the lines about the person are refused.
 */
import {
  FILE_BEGINNING,
  type FileEntry,
  type FilePosition,
  type MemberFileFormat,
  readEntries,
} from '../audience/import/member-file.ts'
import type { TextSource } from '../audience/import/text-file.ts'
import { type EntryOutcome, importEntries } from '../audience/update-members.ts'
import { AppError, FatalError, toFatalError } from '../errors.ts'
import { DatabaseBusy, endsConnection, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { pipelineIn, type Queryable, statement } from '../postgres/statement.ts'
import type { Job } from './job.ts'
import { readFileFrom } from './job-file.ts'
import { scopeOfJob } from './selection.ts'
import type { Progress, RunStep, Step } from './step.ts'

/** Refused lines that are kept with their reasons. Further ones are only counted. */
const REFUSALS_MAX = 100

interface ImportParameters {
  format: MemberFileFormat
}

export interface ImportTally {
  changed: number
  /** members among the changed ones that lost something */
  replaced: number
  unchanged: number
  refused: number
  refusals: Array<{ line: number; reason: string }>
}

/** $1 job id bigint, $2 bytes of the file that are no longer needed bigint */
const deletePieces = statement('delete-pieces-of-job-file')`
    delete from job_file where job_id = $1 and position + octet_length(bytes) <= $2`

export const importMembers: RunStep = async (job, step) => {
  const { format } = job.parameters as ImportParameters
  const from = (job.position as FilePosition | null) ?? FILE_BEGINNING
  const file: TextSource = { name: 'the file', open: () => readFileFrom(step.database, job.id, from.byte) }
  const batches = readBatches(file, format, from)
  const none: ImportTally = { changed: 0, replaced: 0, unchanged: 0, refused: 0, refusals: [] }
  let tally = { ...none, ...(job.tally as object) }
  const end = (): Progress => ({ position: null, done: job.total ?? job.done, tally })
  try {
    for await (const batch of batches) {
      tally = await importBatch(job, step, batch, tally)
      if (step.isOver()) return
    }
    await step.commit(async () => end())
  } catch (error) {
    // Otherwise, the file is not at fault.
    if (!(error instanceof FatalError)) throw error
    await step.commit(async () => ({ ...end(), failure: error.message }))
  }
}

/**
 * Applies the entries in one transaction. If it fails, nothing is changed, and the entries are applied in smaller parts, so that each
 * is refused for its own reason. A committed transaction has the same result as applying its entries one after another.
 */
async function importBatch(
  job: Job,
  step: Step,
  batch: FileEntry[],
  before: ImportTally,
): Promise<ImportTally> {
  const scope = scopeOfJob(job)
  const { format } = job.parameters as ImportParameters
  let tally = before
  const commit = async (
    entries: FileEntry[],
    outcomesOf: (transaction: Queryable) => Promise<EntryOutcome[]>,
  ): Promise<void> => {
    let counted = tally
    await step.commit(async (transaction) => {
      const outcomes = await outcomesOf(transaction)
      counted = entries.reduce((sum, { line }, index) => count(sum, line, outcomes[index]), tally)
      const { next } = entries.at(-1) as FileEntry
      await transaction.query(deletePieces, [job.id, next.byte])
      return { position: next, done: BigInt(next.byte), tally: counted }
    })
    tally = counted
  }
  const apply = async (entries: FileEntry[]): Promise<void> => {
    try {
      const values = entries.map(({ value }) => value)
      await commit(entries, (transaction) =>
        importEntries(transaction, pipelineIn(transaction), scope, values, format === 'csv'),
      )
    } catch (error) {
      // A second attempt is not safe: the first one may have been committed. A busy database has seen none of them.
      if (endsConnection(error) || error instanceof DatabaseBusy) throw error
      if (entries.length === 1) {
        const refusal = refusalOf(error)
        return commit(entries, async () => [refusal])
      }
      // Halves find a taken externalId in few transactions. A locked member would delay every part that contains it.
      const isTaken = error instanceof AppError && error.code === 'external_id_taken'
      const length = isTaken ? Math.ceil(entries.length / 2) : 1
      for (let start = 0; start < entries.length && !step.isOver(); start += length)
        await apply(entries.slice(start, start + length))
    }
  }
  await apply(batch)
  return tally
}

function count(tally: ImportTally, line: number, outcome: EntryOutcome | undefined): ImportTally {
  if (!(outcome instanceof Error)) {
    const name = outcome ? 'changed' : 'unchanged'
    return { ...tally, [name]: tally[name] + 1, replaced: tally.replaced + Number(outcome === 2) }
  }
  const refused = tally.refused + 1
  if (tally.refusals.length >= REFUSALS_MAX) return { ...tally, refused }
  return { ...tally, refused, refusals: [...tally.refusals, { line, reason: reasonOf(outcome) }] }
}

/** The names of attributes come from the file, and are not stored. */
function reasonOf(refusal: Error): string {
  return refusalOf(refusal).message.replaceAll(/attributes\/[^;]*?(?= must|;|$)/g, 'attributes')
}

// The entries of a file in batches.

/**
 * Entries per transaction. Deliveries about the same members wait until it ends: 100 entries × 100 µs = 10 ms. The commit and the round
 * trips take about 1 ms, so larger batches are hardly faster.
 */
const BATCH_MAX_ENTRIES = 100
/** A batch ends after this many characters. Tags take the longest: 50 entries × 100 tags × 10 µs = 50 ms. */
const BATCH_MAX_LENGTH = 32 * 1024

/** Yields the entries before a fault in the file, then throws. */
async function* readBatches(
  file: TextSource,
  format: MemberFileFormat,
  from: FilePosition,
): AsyncGenerator<FileEntry[]> {
  let batch: FileEntry[] = []
  let length = 0
  try {
    for await (const entry of readEntries(file, format, from)) {
      batch.push(entry)
      length += entry.length
      if (batch.length < BATCH_MAX_ENTRIES && length < BATCH_MAX_LENGTH) continue
      yield batch
      batch = []
      length = 0
    }
  } catch (error) {
    if (batch.length > 0) yield batch
    throw error
  }
  if (batch.length > 0) yield batch
}

/** Returns why one entry is refused. A locked member refuses one line. Throws any error that is not about the entry. */
function refusalOf(error: unknown): FatalError {
  if (sqlStateOf(error) === LOCK_TIMEOUT)
    return new FatalError('another transaction has locked this member. Import the line again later.')
  return toFatalError(error)
}
