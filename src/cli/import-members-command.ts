import type { Scope } from '../access/scope.ts'
import { AppError, FatalError } from '../errors.ts'
import { importEntries } from '../operator/import-entries.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable, endsConnection, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { toFatalError } from './input.ts'
import { type FileEntry, readEntries } from './member-file.ts'
import type { Progress } from './progress.ts'

/** Refused lines that are reported individually. Further lines are only counted. */
const FAULTS_MAX = 20
/**
 * Entries per transaction. Deliveries about the same members wait until it ends: 100 entries × 100 µs = 10 ms. The commit and the round
 * trips take about 1 ms, so larger batches are hardly faster.
 */
const BATCH_MAX_ENTRIES = 100
/** A batch ends after this many characters. Tags take the longest: 50 entries × 100 tags × 10 µs = 50 ms. */
const BATCH_MAX_LENGTH = 32 * 1024

export interface ImportTally {
  changed: number
  refused: number
  faults: string[]
  /** the last line that was applied or refused; 0 if none */
  lastLine: number
  /** why the import stopped before the end of the file; null if it did not */
  stopReason: string | null
}

export const NOTHING_IMPORTED: ImportTally = {
  changed: 0,
  refused: 0,
  faults: [],
  lastLine: 0,
  stopReason: null,
}

/**
 * Entries are applied in the order of the file, which decides if two of them have the same member or externalId.
 * @param tally is kept up to date, so that the caller can report it after any end of the import
 */
export async function importMembers(
  database: Database,
  scope: Scope,
  file: string,
  tally: ImportTally,
  progress: Progress,
): Promise<void> {
  try {
    for await (const batch of readBatches(file)) {
      await importBatch(database, scope, batch, tally)
      progress.show(tally.changed + tally.refused)
    }
  } catch (error) {
    // This value stays if stopReasonOf throws.
    tally.stopReason = 'an unexpected error'
    tally.stopReason = stopReasonOf(error)
  }
}

/** Yields the entries before a fault in the file, then throws. */
async function* readBatches(file: string): AsyncGenerator<FileEntry[]> {
  let batch: FileEntry[] = []
  let length = 0
  let fault: { error: unknown } | null = null
  try {
    for await (const entry of readEntries(file)) {
      batch.push(entry)
      length += entry.length
      if (batch.length < BATCH_MAX_ENTRIES && length < BATCH_MAX_LENGTH) continue
      yield batch
      batch = []
      length = 0
    }
  } catch (error) {
    fault = { error }
  }
  if (batch.length > 0) yield batch
  if (fault !== null) throw fault.error
}

/**
 * Applies the entries in one transaction. If it fails, nothing is changed, and the entries are applied in smaller parts, so that each
 * is refused for its own reason. A committed transaction has the same result as applying its entries one after another.
 */
async function importBatch(
  database: Database,
  scope: Scope,
  batch: FileEntry[],
  tally: ImportTally,
): Promise<void> {
  let refusals: Array<Error | null>
  try {
    const values = batch.map(({ value }) => value)
    refusals = await importEntries(database, scope, values)
  } catch (error) {
    // A second attempt is not safe: the first one may have been committed.
    if (endsConnection(error)) throw error
    const [entry] = batch
    if (entry !== undefined && batch.length === 1) return record(tally, entry.line, error)
    // Halves find a taken externalId in few transactions. A locked member would delay every part that contains it.
    const isTaken = error instanceof AppError && error.code === 'external_id_taken'
    const length = isTaken ? Math.ceil(batch.length / 2) : 1
    for (let start = 0; start < batch.length; start += length)
      await importBatch(database, scope, batch.slice(start, start + length), tally)
    return
  }
  for (const [index, { line }] of batch.entries()) record(tally, line, refusals[index] ?? null)
}

/** @param refusal null: the entry is applied. Throws an error that is not about this entry. */
function record(tally: ImportTally, line: number, refusal: unknown): void {
  if (refusal === null) tally.changed += 1
  else {
    const { message } = refusalOf(refusal)
    tally.refused += 1
    if (tally.faults.length < FAULTS_MAX) tally.faults.push(`line ${line}: ${message}`)
  }
  tally.lastLine = line
}

/** A locked member refuses one line. An unavailable database ends the import. */
function refusalOf(error: unknown): FatalError {
  if (sqlStateOf(error) === LOCK_TIMEOUT)
    return new FatalError('another transaction has locked this member. Import the line again later.')
  return toFatalError(error)
}

function stopReasonOf(error: unknown): string {
  if (error instanceof DatabaseUnavailable) return 'the database does not respond'
  if (error instanceof FatalError) return error.message
  throw error
}
