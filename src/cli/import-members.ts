/** Imports a file of members, one entry after the other. */
import type { Scope } from '../access/scope.ts'
import { FatalError } from '../errors.ts'
import { importMember } from '../operator/import-member.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { toFatalError } from './input.ts'
import { type FileEntry, readEntries } from './member-file.ts'
import { Progress } from './progress.ts'

/** Refused lines that are reported one by one. Further lines are only counted. */
const FAULTS_MAX = 20

export interface ImportTally {
  changed: number
  refused: number
  /** the first refused lines with the reasons */
  faults: string[]
  /** why reading stopped before the end of the file, and after which line; null: it did not */
  stopped: string | null
}

/**
 * Entries are applied in the order of the file, which decides if two of them name one member or one externalId. Throws a
 * FatalError if not even the first entry can be read.
 */
export async function importMembers(database: Database, scope: Scope, file: string): Promise<ImportTally> {
  const tally: ImportTally = { changed: 0, refused: 0, faults: [], stopped: null }
  const progress = new Progress('lines', null)
  let lastLine = 0
  try {
    for await (const entry of readEntries(file)) {
      await importEntry(database, scope, entry, tally)
      lastLine = entry.line
      progress.show(tally.changed + tally.refused)
    }
  } catch (error) {
    if (lastLine === 0) throw error
    tally.stopped = `nothing after line ${lastLine} was imported: ${stopReasonOf(error)}`
  } finally {
    progress.end()
  }
  return tally
}

async function importEntry(
  database: Database,
  scope: Scope,
  { line, value }: FileEntry,
  tally: ImportTally,
): Promise<void> {
  try {
    if (value instanceof Error) throw value
    await importMember(database, scope, value)
    tally.changed += 1
  } catch (error) {
    const { message } = refusalOf(error)
    tally.refused += 1
    if (tally.faults.length < FAULTS_MAX) tally.faults.push(`line ${line}: ${message}`)
  }
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
