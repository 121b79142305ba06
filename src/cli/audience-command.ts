/** `oa-audience audience export|import`: whole audiences as files. */
import { type Command, Option } from 'commander'
import type { Account } from '../accounts/account.ts'
import { checkFilters, type Filters, readFilters } from '../audience/filters.ts'
import { FILE_FORMATS, memberLines } from '../audience/list.ts'
import { recordExport } from '../audience/manage-members.ts'
import { FatalError } from '../errors.ts'
import type { ImportTally } from '../jobs/import-members.ts'
import type { JobSummary } from '../jobs/job.ts'
import { storeFile } from '../jobs/job-file.ts'
import { publicFilters, scopeOfJob } from '../jobs/selection.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { systemReason } from '../system-reason.ts'
import { followJob } from './follow-job.ts'
import { onDatabase, parseId, parsePath, requireAccount, withJson } from './input.ts'
import { fileSource, io, printError, printOne } from './io.ts'
import { writeParts } from './output.ts'

/** Refused lines that are reported individually. Further lines are only counted. */
const REFUSALS_SHOWN = 20
const REASONS: Record<string, string> = {
  columns_missing: 'line 1 names no columns: a file needs userId or id, and externalId, tags or attributes',
}

export function audienceCommand(program: Command): void {
  const group = program.command('audience').description('export and import the members of an account')
  exportCommand(group)
  importCommand(group)
}

function exportCommand(group: Command): void {
  withJson(group.command('export'))
    .description('write all matching members, page by page, to standard output or a file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .addOption(
      new Option('--format <format>', 'file format').choices(Object.keys(FILE_FORMATS)).default('ndjson'),
    )
    .option(
      '--output <file>',
      'write to this file, which only its owner can read, instead of standard output',
      parsePath,
    )
    .option('--user-id <id>', 'only the member with this user id')
    .option('--external-id <id>', 'only the member with this externalId')
    .option('--relationship <state>', 'only members in this state: following, blocked or unknown')
    .option('--tag <tag...>', 'only members with all of these tags')
    .option('--segment <name>', 'only members of this segment')
    .option('--q <part>', 'only members whose display name contains this text')
    .option('--updated-since <time>', 'only members changed or erased since this time')
    .action(async ({ account, json, ...options }: ExportOptions & { account: bigint; json?: boolean }) => {
      const count = await onDatabase(async (database) =>
        exportMembers(database, await requireAccount(database, account), options),
      )
      if (options.output !== undefined) printOne({ members: count }, json === true)
    })
}

function importCommand(group: Command): void {
  withJson(group.command('import'))
    .description('set externalId, tags and attributes of existing members from a file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .argument(
      '<file>',
      'file as `audience export` writes it (.csv, otherwise NDJSON), each line with userId or id, other fields ignored; - reads NDJSON from standard input',
    )
    .action(async (file: string, { account: id, json }: { account: bigint; json?: boolean }) => {
      const format = file.toLowerCase().endsWith('.csv') ? 'csv' : 'ndjson'
      await onDatabase(async (database) => {
        const account = await requireAccount(database, id)
        const job = await storeFile(database, commandActor(), account, format, bytesOf(file))
        report(file, await followJob(database, job, 'bytes'), json === true)
      })
    })
}

async function* bytesOf(file: string): AsyncGenerator<Buffer> {
  try {
    yield* fileSource(file).open()
  } catch (error) {
    throw new FatalError(`${file} cannot be read: ${systemReason(error)}`)
  }
}

/** Prints the tally also of an import that stopped before the end of its file. */
function report(file: string, job: JobSummary | null, asJson: boolean): void {
  const {
    changed = 0,
    unchanged = 0,
    refused = 0,
    refusals = [],
  } = (job?.tally ?? {}) as Partial<ImportTally>
  const shown = refusals.slice(0, REFUSALS_SHOWN)
  for (const { line, reason } of shown) printError(`oa-audience: line ${line}: ${reason}`)
  if (refused > shown.length) printError(`oa-audience: ${refused - shown.length} more entries were refused`)
  if (job?.status !== 'done') {
    const reason = REASONS[job?.reason ?? ''] ?? job?.reason ?? 'the task was deleted'
    const place = reason.replace(/^the file\b/, file).replace(/\.$/, '')
    printError(`oa-audience: the import stopped: ${place}. It is safe to run the command again.`)
  }
  printOne({ changed: changed + unchanged, refused }, asJson)
  if (refused > 0 || job?.status !== 'done') io.exitCode = 1
}

interface ExportOptions {
  format: keyof typeof FILE_FORMATS
  output?: string
  userId?: string
  externalId?: string
  relationship?: string
  tag?: string[]
  segment?: string
  q?: string
  updatedSince?: string
}

/** Returns the number of lines written. Throws a FatalError for an invalid filter or an output that cannot be written. */
async function exportMembers(
  database: Database,
  account: Account,
  { format, output, ...filterOptions }: ExportOptions,
): Promise<number> {
  const filters = await filtersOf(database, account, filterOptions)
  const scope = scopeOfJob({ accountId: account.id, organizationId: account.organizationId })
  const changes = { format, filters: publicFilters(filters) }
  // Before the first byte, because an export that is interrupted has also left the service.
  await recordExport(database, commandActor(), account, changes)
  const lines = memberLines(database.reads.streams(), scope, filters, FILE_FORMATS[format])
  return writeParts(lines, 'members', output)
}

function filtersOf(
  database: Database,
  { id }: Account,
  options: Omit<ExportOptions, 'format' | 'output'>,
): Promise<Filters> {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return readFilters(database, id, checkFilters(Object.fromEntries(given)))
}
