/** `oa-audience audience export|import`: whole audiences, in and out, as files. */

import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type Command, Option } from 'commander'
import type { Scope } from '../access/scope.ts'
import { checkFilters, type Filters, toFilters } from '../audience/filters.ts'
import { beginningOf } from '../audience/list.ts'
import { CSV, memberLines, NDJSON } from '../audience/stream.ts'
import { FatalError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { importMembers } from './import-members.ts'
import { accountOf, asFatal, onDatabase, parseId, withJson } from './input.ts'
import { printOne } from './output.ts'
import { Progress } from './progress.ts'

interface ExportOptions {
  account: bigint
  format: keyof typeof FORMATS
  output?: string
  userId?: string
  externalId?: string
  relationship?: string
  tag?: string[]
  q?: string
  updatedSince?: string
}

const FORMATS = { ndjson: NDJSON, csv: CSV }

export function audienceCommand(program: Command): void {
  const group = program.command('audience').description('the members of an account, as files')

  withJson(group.command('export'))
    .description('write every member that matches, from one snapshot, to standard output or a file')
    .requiredOption('--account <id>', 'the account', parseId)
    .addOption(new Option('--format <format>').choices(Object.keys(FORMATS)).default('ndjson'))
    .option('--output <file>', 'write there instead of to standard output')
    .option('--user-id <id>', 'this person')
    .option('--external-id <id>', 'the member with this externalId')
    .option('--relationship <state>', 'following, blocked or unknown')
    .option('--tag <tag...>', 'with all of these tags')
    .option('--q <part>', 'with this in the display name')
    .option('--updated-since <time>', 'changed since, with erased members')
    .action(async (options: ExportOptions & { json?: boolean }) => {
      const count = await onDatabase(async (database) =>
        exportMembers(database, await scopeOf(database, options.account), options),
      )
      if (options.output !== undefined) printOne({ members: count }, options.json === true)
    })

  withJson(group.command('import'))
    .description(
      'set externalId, tags and attributes of members from a file (.csv, else ndjson), each line with userId or id; - reads ndjson from standard input',
    )
    .requiredOption('--account <id>', 'the account', parseId)
    .argument('<file>', 'as `audience export` writes it: what else it holds is passed over')
    .action(async (file: string, { account, json }: { account: bigint; json?: boolean }) => {
      const tally = await onDatabase(async (database) =>
        importMembers(database, await scopeOf(database, account), file),
      )
      for (const fault of tally.faults) console.error(`oa-audience: ${fault}`)
      if (tally.refused > tally.faults.length) console.error(`oa-audience: and so on`)
      if (tally.stopped !== null) console.error(`oa-audience: ${tally.stopped}`)
      printOne({ changed: tally.changed, refused: tally.refused }, json === true)
      if (tally.refused > 0 || tally.stopped !== null) process.exitCode = 1
    })
}

async function scopeOf(database: Database, id: bigint): Promise<Scope> {
  const account = await accountOf(database, id)
  return { keyId: null, accountId: account.id, organizationId: account.organizationId }
}

async function exportMembers(database: Database, scope: Scope, options: ExportOptions): Promise<number> {
  const format = FORMATS[options.format]
  const filters = readFilters(options)
  const total = await countMembers(database, scope, filters)
  const progress = new Progress('members', total)
  const failed = new AbortController()
  let count = 0
  const texts = async function* () {
    for await (const lines of memberLines(
      database,
      scope,
      filters,
      beginningOf(filters),
      format,
      failed.signal,
    )) {
      yield lines.text
      count += lines.count
      progress.show(count)
    }
  }
  const output = options.output === undefined ? process.stdout : createWriteStream(options.output)
  try {
    await pipeline(Readable.from(texts(), { highWaterMark: 1 }), output, {
      end: options.output !== undefined,
    })
  } catch (error) {
    const { code } = error as { code?: string }
    // Whoever read our output, such as head, has had enough.
    if (code === 'EPIPE') return count
    if (!['ENOENT', 'ENOSPC', 'EACCES', 'EISDIR', 'EROFS', 'EIO', 'ENOTDIR'].includes(code ?? '')) throw error
    throw new FatalError(`${options.output ?? 'standard output'} cannot be written (${code})`)
  } finally {
    failed.abort()
  }
  progress.end(count)
  return count
}

function readFilters(options: ExportOptions): Filters {
  const { userId, externalId, relationship, tag, q, updatedSince } = options
  const given = { userId, externalId, relationship, tag, q, updatedSince }
  const named = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  try {
    return toFilters(checkFilters(named))
  } catch (error) {
    throw asFatal(error)
  }
}

/** For the progress alone: with filters nobody knows before. */
async function countMembers(database: Database, scope: Scope, filters: Filters): Promise<number | null> {
  if (Object.keys(filters).length > 0) return null
  const [row] = await database.session((session) =>
    session.query<{ count: bigint }>('select count(*) from audience_member where channel_oa_id = $1', [
      scope.accountId,
    ]),
  )
  return Number(row?.count ?? 0)
}
