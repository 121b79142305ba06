/** `oa-audience audience export|import`: whole audiences as files. */
import { Option } from 'commander'
import { scopeOfAccount } from '../accounts/scope.ts'
import { checkFilters, readFilters } from '../audience/filters.ts'
import type { Encoding } from '../audience/import/encodings.ts'
import { FILE_FORMATS, type FileFormat, memberLines } from '../audience/list-route.ts'
import { systemReason } from '../config/system-reason.ts'
import { FatalError } from '../errors.ts'
import type { ImportTally } from '../jobs/import-members.ts'
import type { JobSummary } from '../jobs/job.ts'
import { storeFile } from '../jobs/job-file.ts'
import { publicFilters } from '../jobs/selection.ts'
import { recordAccount } from '../operators/activity.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { type CliCommand, parseId, parsePath, requireAccount } from './command.ts'
import { followJob } from './follow-job.ts'
import { encodingOption, fileSource, io, printError } from './io.ts'
import { writeParts } from './output.ts'

/** Refused lines that are reported individually. Further lines are only counted. */
const REFUSALS_SHOWN = 20
const REASONS: Record<string, string> = {
  columns_missing: 'line 1 names no columns: a file needs userId or id, and externalId, tags or attributes',
}

export function audienceCommand(program: CliCommand): void {
  const group = program.command('audience').description('export and import the members of an account')
  exportCommand(group)
  importCommand(group)
}

function exportCommand(group: CliCommand): void {
  const command = group
    .command('export')
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
  withFilters(command)
    .option('--updated-since <time>', 'only members changed or erased since this time')
    .onDatabase(exportMembers)
}

function importCommand(group: CliCommand): void {
  group
    .command('import')
    .description('set externalId, tags and attributes of existing members from a file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .argument(
      '<file>',
      'file as `audience export` writes it (.csv, otherwise NDJSON), each line with userId or id, other fields ignored; - reads NDJSON from standard input',
    )
    .addOption(encodingOption())
    .onDatabase(async (database, file: string, given: { account: bigint; encoding: Encoding }) => {
      const format = file.toLowerCase().endsWith('.csv') ? 'csv' : 'ndjson'
      const account = await requireAccount(database, given.account)
      printError('Each line replaces all tags and attributes of its member. What it leaves out is kept.')
      const job = await storeFile(database, commandActor(), account, format, bytesOf(file, given.encoding))
      return tallyOf(file, await followJob(database, job, 'bytes'))
    })
}

async function* bytesOf(file: string, encoding: Encoding): AsyncGenerator<Buffer> {
  try {
    yield* fileSource(file, encoding).open()
  } catch (error) {
    throw new FatalError(`${file} cannot be read: ${systemReason(error)}`)
  }
}

/** Returns the tally also of an import that stopped before the end of its file. */
function tallyOf(file: string, job: JobSummary | null) {
  const tally = (job?.tally ?? {}) as Partial<ImportTally>
  const { changed = 0, replaced = 0, unchanged = 0, refused = 0, refusals = [] } = tally
  const shown = refusals.slice(0, REFUSALS_SHOWN)
  for (const { line, reason } of shown) printError(`oa-audience: line ${line}: ${reason}`)
  if (refused > shown.length) printError(`oa-audience: further refused entries: ${refused - shown.length}`)
  if (job?.status !== 'done') {
    const reason = REASONS[job?.reason ?? ''] ?? job?.reason ?? 'the job was deleted'
    const place = reason.replace(/^the file\b/, file).replace(/\.$/, '')
    printError(`oa-audience: the import stopped: ${place}. It is safe to run the command again.`)
  }
  if (refused > 0 || job?.status !== 'done') io.exitCode = 1
  return { changed, replaced, unchanged, refused }
}

export const withFilters = (command: CliCommand): CliCommand =>
  command
    .option('--user-id <id>', 'only the member with this user id')
    .option('--external-id <id>', 'only the member with this externalId')
    .option('--relationship <state>', 'only members in this state: following, blocked or unknown')
    .option('--tag <tag...>', 'only members with all of these tags')
    .option('--segment <name>', 'only members of this segment')
    .option('--q <part>', 'only members whose display name contains this text')

interface ExportOptions {
  account: bigint
  format: FileFormat
  output?: string
  json?: boolean
}

async function exportMembers(
  database: Database,
  { account: id, format, output, json: _, ...given }: ExportOptions,
): Promise<{ members: number } | undefined> {
  const account = await requireAccount(database, id)
  const filters = await readFilters(database, id, checkFilters(given))
  const scope = scopeOfAccount(account)
  const changes = { format, filters: publicFilters(filters) }
  // Before the first byte, because an export that is interrupted has also left the service.
  await recordAccount(database, commandActor(), 'members.exported', account, changes)
  const parts = memberLines(database.reads.streams(), scope, filters, format, FILE_FORMATS[format].mark)
  const members = await writeParts(parts, output, 'members')
  return output === undefined ? undefined : { members }
}
