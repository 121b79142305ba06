/** `oa-audience audience export|import`: whole audiences, in and out, as files. */

import { createReadStream, createWriteStream } from 'node:fs'
import { PassThrough, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type Command, Option } from 'commander'
import { parse as parseCsv } from 'csv-parse'
import type { Scope } from '../access/scope.ts'
import { checkFilters, type Filters, toFilters } from '../audience/filters.ts'
import { beginningOf } from '../audience/list.ts'
import { fromCsvText } from '../audience/member.ts'
import { CSV, memberLines, NDJSON } from '../audience/stream.ts'
import { checkUpdate, type MemberUpdate, updateMember } from '../audience/update.ts'
import { AppError, FatalError } from '../errors.ts'
import { isObject } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { isStorableText } from '../postgres/storable.ts'
import { accountOf, onDatabase, parseId, withJson } from './input.ts'
import { printOne } from './output.ts'
import { Progress } from './progress.ts'

/** Lines that are told one by one; of the others the count. */
const FAULTS_SHOWN = 20

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
      printOne({ changed: tally.changed, refused: tally.refused }, json === true)
      if (tally.refused > 0) process.exitCode = 1
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

interface ImportTally {
  changed: number
  refused: number
  faults: string[]
}

async function importMembers(database: Database, scope: Scope, file: string): Promise<ImportTally> {
  const tally: ImportTally = { changed: 0, refused: 0, faults: [] }
  const progress = new Progress('lines', null)
  // One after the other: of two lines for one member, or with one externalId, the order in the file decides.
  for await (const { no, entry } of readEntries(file)) {
    try {
      await importEntry(database, scope, entry)
      tally.changed += 1
    } catch (error) {
      const fault = asFatal(error)
      tally.refused += 1
      if (tally.faults.length < FAULTS_SHOWN) tally.faults.push(`line ${no}: ${fault.message}`)
    }
    progress.show(tally.changed + tally.refused)
  }
  progress.end(tally.changed + tally.refused)
  return tally
}

/** The entries of a file with their lines' numbers. What cannot be read as an object comes as an Error. */
async function* readEntries(file: string): AsyncGenerator<{ no: number; entry: unknown }> {
  const input = file === '-' ? process.stdin : createReadStream(file)
  const isCsv = file.toLowerCase().endsWith('.csv')
  const parsed = isCsv
    ? parseCsv({ columns: true, bom: true, info: true, relax_column_count: true })
    : new PassThrough()
  // Faults of the one are faults of the other.
  pipeline(input, parsed).catch(() => undefined)
  try {
    if (isCsv) {
      for await (const { record, info } of parsed as AsyncIterable<CsvRow>) {
        yield { no: info.lines, entry: fromCsv(record) }
      }
      return
    }
    let no = 0
    for await (const line of linesOf(parsed)) {
      no += 1
      if (line.trim() !== '') yield { no, entry: fromJson(line) }
    }
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    throw new FatalError(`${file} cannot be read (${code?.startsWith('CSV_') ? message : (code ?? message)})`)
  }
}

interface CsvRow {
  record: Record<string, string>
  info: { lines: number }
}

/** Lines of a stream, whose faults are thrown: readline would wait for ever. */
async function* linesOf(input: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of input) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    yield* lines
  }
  yield rest
}

function fromJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return new FatalError('this is no JSON')
  }
}

/** Back from what `export` makes of it: an empty cell says nothing, an apostrophe keeps spreadsheets from calculating. */
function fromCsv(record: Record<string, string>): unknown {
  const cell = (name: string) => fromCsvText(record[name] ?? '') || undefined
  const entry = { id: cell('id'), userId: cell('userId'), externalId: cell('externalId') }
  const parsed = Object.fromEntries(
    ['tags', 'attributes'].flatMap((name) => {
      const text = cell(name)
      return text === undefined ? [] : [[name, fromJson(text)]]
    }),
  )
  const fault = Object.values(parsed).find((value) => value instanceof Error)
  return fault ?? { ...entry, ...parsed }
}

async function importEntry(database: Database, scope: Scope, entry: unknown): Promise<void> {
  if (entry instanceof Error) throw entry
  if (!isObject(entry)) throw new FatalError('this is no object')
  const { id, userId, externalId, tags, attributes } = entry
  const memberId = await findMember(database, scope, id, userId)
  const given = Object.entries({ externalId, tags, attributes }).filter(([, value]) => value !== undefined)
  const update: MemberUpdate = checkUpdate(Object.fromEntries(given))
  await updateMember(database, scope, memberId, update, null)
}

async function findMember(database: Database, scope: Scope, id: unknown, userId: unknown): Promise<bigint> {
  if (typeof id === 'string' && id !== '') {
    const parsed = parsePathId(id)
    if (parsed === null) throw new FatalError('the id is none')
    return parsed
  }
  if (typeof userId !== 'string' || userId === '') throw new FatalError('there is neither userId nor id')
  if (!isStorableText(userId)) throw new AppError('unknown_member')
  const [member] = await database.query<{ id: bigint }>(
    {
      name: 'member-id-by-user',
      text: 'select id from audience_member where channel_oa_id = $1 and organization_id = $2 and user_id = $3',
    },
    [scope.accountId, scope.organizationId, userId],
  )
  if (member === undefined) throw new AppError('unknown_member')
  return member.id
}

/** Faults of the input as one line; anything else is no fault of the input. */
function asFatal(error: unknown): FatalError {
  if (error instanceof FatalError) return error
  if (!(error instanceof AppError) || error.code === 'unavailable') throw error
  const details = error.details?.map(({ path, message }) => `${path} ${message}`).join('; ')
  return new FatalError(details ?? error.message)
}
