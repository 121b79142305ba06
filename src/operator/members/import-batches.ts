/** Applies the entries of a member file in batches, for the command line and for jobs. */
import { AppError, FatalError, toFatalError } from '../../errors.ts'
import { DatabaseBusy, endsConnection, LOCK_TIMEOUT, sqlStateOf } from '../../postgres/faults.ts'
import { type FileEntry, type FilePosition, type MemberFileFormat, readEntries } from './member-file.ts'
import type { TextSource } from './text-file.ts'

/**
 * Entries per transaction. Deliveries about the same members wait until it ends: 100 entries × 100 µs = 10 ms. The commit and the round
 * trips take about 1 ms, so larger batches are hardly faster.
 */
const BATCH_MAX_ENTRIES = 100
/** A batch ends after this many characters. Tags take the longest: 50 entries × 100 tags × 10 µs = 50 ms. */
const BATCH_MAX_LENGTH = 32 * 1024

/** Yields the entries before a fault in the file, then throws. */
export async function* readBatches(
  file: TextSource,
  format: MemberFileFormat,
  from?: FilePosition,
): AsyncGenerator<FileEntry[]> {
  let batch: FileEntry[] = []
  let length = 0
  let fault: { error: unknown } | null = null
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
    fault = { error }
  }
  if (batch.length > 0) yield batch
  if (fault !== null) throw fault.error
}

export interface BatchSteps {
  /** applies entries in one transaction */
  apply: (entries: FileEntry[]) => Promise<void>
  /** records that one entry is refused; throws an error that is not about this entry */
  refuse: (entry: FileEntry, error: unknown) => Promise<void>
  /** whether to leave the other entries for later */
  isOver?: () => boolean
}

/**
 * Applies the entries in one transaction. If it fails, nothing is changed, and the entries are applied in smaller parts, so that each
 * is refused for its own reason. A committed transaction has the same result as applying its entries one after another.
 */
export async function applyBatch(batch: FileEntry[], steps: BatchSteps): Promise<void> {
  const { apply, refuse, isOver = () => false } = steps
  try {
    await apply(batch)
  } catch (error) {
    // A second attempt is not safe: the first one may have been committed. A busy database has seen none of them.
    if (endsConnection(error) || error instanceof DatabaseBusy) throw error
    const [entry] = batch
    if (entry !== undefined && batch.length === 1) return refuse(entry, error)
    // Halves find a taken externalId in few transactions. A locked member would delay every part that contains it.
    const isTaken = error instanceof AppError && error.code === 'external_id_taken'
    const length = isTaken ? Math.ceil(batch.length / 2) : 1
    for (let start = 0; start < batch.length && !isOver(); start += length)
      await applyBatch(batch.slice(start, start + length), steps)
  }
}

/** Returns why one entry is refused. A locked member refuses one line. Throws any error that is not about the entry. */
export function refusalOf(error: unknown): FatalError {
  if (sqlStateOf(error) === LOCK_TIMEOUT)
    return new FatalError('another transaction has locked this member. Import the line again later.')
  return toFatalError(error)
}
