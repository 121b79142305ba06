import type { Scope } from '../access/scope.ts'
import { FatalError } from '../errors.ts'
import { applyBatch, readBatches, refusalOf } from '../operator/members/import-batches.ts'
import { importEntries, type Outcome } from '../operator/members/import-entries.ts'
import type { FileEntry } from '../operator/members/member-file.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseBusy, DatabaseUnavailable } from '../postgres/faults.ts'
import { fileSource } from './io.ts'
import type { Progress } from './progress.ts'

/** Refused lines that are reported individually. Further lines are only counted. */
const FAULTS_MAX = 20
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
  const format = file.toLowerCase().endsWith('.csv') ? 'csv' : 'ndjson'
  try {
    for await (const batch of readBatches(fileSource(file), format)) {
      await importBatch(database, scope, batch, tally)
      progress.show(tally.changed + tally.refused)
      if (tally.stopReason !== null) return
    }
  } catch (error) {
    // This value stays if stopReasonOf throws.
    tally.stopReason = 'an unexpected error'
    tally.stopReason = stopReasonOf(error)
  }
}

function importBatch(
  database: Database,
  scope: Scope,
  batch: FileEntry[],
  tally: ImportTally,
): Promise<void> {
  const send = database.forTenant(scope).pipeline
  return applyBatch(batch, {
    apply: async (entries) => {
      const values = entries.map(({ value }) => value)
      const outcomes = await importEntries(database, send, scope, values)
      for (const [index, { line }] of entries.entries()) record(tally, line, outcomes[index])
    },
    refuse: async ({ line }, error) => record(tally, line, refusalOf(error)),
  })
}

function record(tally: ImportTally, line: number, outcome: Outcome | undefined): void {
  if (outcome instanceof Error) {
    tally.refused += 1
    if (tally.faults.length < FAULTS_MAX) tally.faults.push(`line ${line}: ${refusalOf(outcome).message}`)
  } else tally.changed += 1
  tally.lastLine = line
}

function stopReasonOf(error: unknown): string {
  if (error instanceof DatabaseUnavailable || error instanceof DatabaseBusy)
    return 'the database does not respond'
  if (error instanceof FatalError) return error.message
  throw error
}
