/** Writes the members of an account to a file or to standard output. */
import type { Scope } from '../access/scope.ts'
import type { Account } from '../accounts/account.ts'
import { checkFilters, type Filters, toFilters } from '../audience/filters.ts'
import { beginningOf, CSV, memberLines, NDJSON } from '../audience/list.ts'
import { commandActor } from '../operator/actor.ts'
import { publicFilters, scopeOfJob } from '../operator/jobs/tag-members.ts'
import { recordExport } from '../operator/members/manage-members.ts'
import { countMembers } from '../operator/members/members.ts'
import type { Database } from '../postgres/database.ts'
import { io } from './io.ts'
import { Progress } from './progress.ts'
import { writeTexts } from './text-output.ts'

export const FORMATS = { ndjson: NDJSON, csv: CSV }

export interface ExportOptions {
  format: keyof typeof FORMATS
  output?: string
  userId?: string
  externalId?: string
  relationship?: string
  tag?: string[]
  q?: string
  updatedSince?: string
}

/** Returns the number of lines written. Throws a FatalError for an invalid filter or an output that cannot be written. */
export async function exportMembers(
  database: Database,
  account: Account,
  { format, output, ...filterOptions }: ExportOptions,
): Promise<number> {
  const filters = readFilters(filterOptions)
  const scope = scopeOfJob({ accountId: account.id, organizationId: account.organizationId })
  const members = await countMatching(database, scope, filters)
  const changes = { format, ...(members !== null && { members }), filters: publicFilters(filters) }
  // Before the first byte, because an export that is interrupted has also left the service.
  await recordExport(database, commandActor(), account, changes)
  const lines = memberLines(database.reads.streams(), scope, filters, beginningOf(filters), FORMATS[format])
  // A progress bar would overwrite lines that are written to the same terminal.
  const isShared = output === undefined && io.stdout.isTTY
  const progress = isShared ? null : new Progress('members', members)
  let count = 0
  const texts = async function* () {
    for await (const { text, count: added } of lines) {
      yield text
      count += added
      progress?.show(count)
    }
  }
  try {
    await writeTexts(texts(), output)
    return count
  } catch (error) {
    // The reader of the output, such as head, has closed the pipe.
    if ((error as { code?: string }).code === 'EPIPE') return count
    throw error
  } finally {
    progress?.end()
  }
}

function readFilters(options: Omit<ExportOptions, 'format' | 'output'>): Filters {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return toFilters(checkFilters(Object.fromEntries(given)))
}

/** Returns null with filters, because counting the matches would take as long as the export. */
async function countMatching(database: Database, scope: Scope, filters: Filters): Promise<number | null> {
  return Object.keys(filters).length > 0 ? null : countMembers(database, scope.accountId)
}
