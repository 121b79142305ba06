/** `oa-audience audience export|import`: whole audiences as files. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Command, Option } from 'commander'
import type { Scope } from '../access/scope.ts'
import { commandActor } from '../operator/actor.ts'
import { recordFile } from '../operator/members/manage-members.ts'
import type { Database } from '../postgres/database.ts'
import { type ExportOptions, exportMembers, FORMATS } from './export-members-command.ts'
import { type ImportTally, importMembers, NOTHING_IMPORTED } from './import-members-command.ts'
import { onDatabase, parseId, parsePath, requireAccount, withJson } from './input.ts'
import { io, printError, printOne } from './io.ts'
import { Progress } from './progress.ts'

/** Ctrl-C ends the command after this time even if the database does not respond. */
const RECORD_MS = 2_000
const INTERRUPTS = ['SIGINT', 'SIGTERM'] as const

export function audienceCommand(program: Command): void {
  const group = program.command('audience').description('export and import the members of an account')
  exportCommand(group)
  importCommand(group)
}

function exportCommand(group: Command): void {
  withJson(group.command('export'))
    .description('write all matching members, page by page, to standard output or a file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .addOption(new Option('--format <format>', 'file format').choices(Object.keys(FORMATS)).default('ndjson'))
    .option(
      '--output <file>',
      'write to this file, which only its owner can read, instead of standard output',
      parsePath,
    )
    .option('--user-id <id>', 'only the member with this user id')
    .option('--external-id <id>', 'only the member with this externalId')
    .option('--relationship <state>', 'only members in this state: following, blocked or unknown')
    .option('--tag <tag...>', 'only members with all of these tags')
    .option('--q <part>', 'only members whose display name contains this text')
    .option('--updated-since <time>', 'only members changed or erased since this time')
    .action(async ({ account, json, ...options }: ExportOptions & { account: bigint; json?: boolean }) => {
      const count = await onDatabase(async (database) =>
        exportMembers(database, await scopeOf(database, account), options),
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
    .action(async (file: string, { account, json }: { account: bigint; json?: boolean }) => {
      await onDatabase(async (database) => {
        const scope = await scopeOf(database, account)
        const tally = { ...NOTHING_IMPORTED, faults: [] }
        let recorded: Promise<void> | null = null
        const record = () => {
          recorded ??= recordImport(database, scope, tally)
          return recorded
        }
        await reporting(tally, json === true, record, (progress) =>
          importMembers(database, scope, file, tally, progress),
        )
      })
    })
}

/** At the end of the file, and also after an error or a signal. Without a database, only the edits of members name the command. */
async function recordImport(database: Database, scope: Scope, tally: ImportTally): Promise<void> {
  const { changed, refused, lastLine, stopReason } = tally
  if (lastLine === 0) return
  const account = { ...scope, id: scope.accountId }
  const changes = { changed, refused }
  try {
    await recordFile(database, commandActor(), account, 'members.imported', changes)
  } catch (error) {
    if (stopReason === null) throw error
    printError('oa-audience: the import is not in the activity log, because the database does not respond.')
  }
}

/** Prints the tally at the end of the file, and also after an error or a signal. */
async function reporting(
  tally: ImportTally,
  asJson: boolean,
  record: () => Promise<void>,
  work: (progress: Progress) => Promise<void>,
): Promise<void> {
  const progress = new Progress('lines', null)
  const interrupt = () => {
    tally.stopReason = 'it was interrupted'
    const isRecorded = record().catch(() => undefined)
    void Promise.race([isRecorded, sleep(RECORD_MS)]).then(() => process.exit(130))
  }
  const report = () => {
    process.off('exit', report)
    for (const signal of INTERRUPTS) process.off(signal, interrupt)
    progress.end()
    printTally(tally, asJson)
  }
  process.once('exit', report)
  // Registered before the listener that ends the process for any command (postgres/pool/open.ts).
  for (const signal of INTERRUPTS) process.prependOnceListener(signal, interrupt)
  await work(progress).finally(record).finally(report)
}

function printTally({ changed, refused, faults, lastLine, stopReason }: ImportTally, asJson: boolean): void {
  for (const fault of faults) printError(`oa-audience: ${fault}`)
  if (refused > faults.length) printError(`oa-audience: ${refused - faults.length} more entries were refused`)
  if (stopReason !== null) {
    const place = lastLine === 0 ? '' : ` after line ${lastLine}`
    // A batch whose connection was lost may have been committed.
    const hint = lastLine === 0 ? '' : ' It is safe to run the command again: it sets the same values.'
    printError(`oa-audience: the import stopped${place}: ${stopReason.replace(/\.$/, '')}.${hint}`)
  }
  printOne({ changed, refused }, asJson)
  if (refused > 0 || stopReason !== null) io.exitCode ||= 1
}

async function scopeOf(database: Database, id: bigint): Promise<Scope> {
  const account = await requireAccount(database, id)
  const { name: actorName } = commandActor()
  return { keyId: null, actorName, accountId: account.id, organizationId: account.organizationId }
}
