/** What `audience import` does with a file: its lines, one after the other, as updates of members. */
import { createReadStream } from 'node:fs'
import { PassThrough } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { parse as parseCsv } from 'csv-parse'
import type { Scope } from '../access/scope.ts'
import { fromCsvText } from '../audience/member.ts'
import { checkUpdate, type MemberUpdate, updateMember } from '../audience/update.ts'
import { AppError, FatalError } from '../errors.ts'
import { isObject } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { DatabaseUnavailable, LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { isStorableText } from '../postgres/storable.ts'
import { asFatal } from './input.ts'
import { Progress } from './progress.ts'

/** Lines that are told one by one; of the others the count. */
const FAULTS_SHOWN = 20

export interface ImportTally {
  changed: number
  refused: number
  faults: string[]
  /** why the rest of the file was not read, and what came after which line */
  stopped: string | null
}

export async function importMembers(database: Database, scope: Scope, file: string): Promise<ImportTally> {
  const tally: ImportTally = { changed: 0, refused: 0, faults: [], stopped: null }
  const progress = new Progress('lines', null)
  let lastLine = 0
  try {
    // One after the other: of two lines for one member, or with one externalId, the order in the file decides.
    for await (const { no, entry } of readEntries(file)) {
      try {
        await importEntry(database, scope, entry)
        tally.changed += 1
      } catch (error) {
        const fault = faultOf(error)
        tally.refused += 1
        if (tally.faults.length < FAULTS_SHOWN) tally.faults.push(`line ${no}: ${fault.message}`)
      }
      lastLine = no
      progress.show(tally.changed + tally.refused)
    }
  } catch (error) {
    if (lastLine === 0) throw error
    tally.stopped = `nothing after line ${lastLine} was imported: ${wordsOf(error)}`
  }
  progress.end(tally.changed + tally.refused)
  return tally
}

/** A member whom somebody else holds for long is one line's fault; a database that is away ends the import. */
function faultOf(error: unknown): FatalError {
  if (sqlStateOf(error) === LOCK_TIMEOUT)
    return new FatalError('another program holds this member: try again')
  return asFatal(error)
}

function wordsOf(error: unknown): string {
  if (error instanceof DatabaseUnavailable) return 'the database does not answer'
  if (error instanceof FatalError) return error.message
  throw error
}

/** The entries of a file with their lines' numbers. What cannot be read as an object comes as an Error. */
async function* readEntries(file: string): AsyncGenerator<{ no: number; entry: unknown }> {
  const input = file === '-' ? process.stdin : createReadStream(file)
  const isCsv = file.toLowerCase().endsWith('.csv')
  const parsed = isCsv
    ? parseCsv({ columns: true, bom: true, info: true, relax_column_count: true })
    : new PassThrough({ encoding: 'utf8' })
  // Faults of the one are faults of the other.
  pipeline(input, utf8Of, parsed).catch(() => undefined)
  try {
    if (isCsv) {
      for await (const { record, info } of parsed as AsyncIterable<CsvRow>) {
        yield { no: info.lines, entry: fromCsv(record) }
      }
      return
    }
    let no = 0
    for await (const line of linesOf(parsed as AsyncIterable<string>)) {
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

/** The text of a file. What is written in another encoding would come out as other words, without a fault. */
async function* utf8Of(input: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  try {
    for await (const chunk of input) yield decoder.decode(chunk, { stream: true })
    yield decoder.decode()
  } catch (error) {
    throw error instanceof TypeError ? new Error('it is not in UTF-8') : error
  }
}

/** Lines of a stream, whose faults are thrown: readline would wait for ever. */
async function* linesOf(input: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = ''
  for await (const chunk of input) {
    const lines = (rest + chunk).split('\n')
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

/** A file from elsewhere may have another's ids: where a line has both, they must be of one person. */
async function findMember(database: Database, scope: Scope, id: unknown, userId: unknown): Promise<bigint> {
  // A number beyond 2^53 has become another one already.
  const isId = typeof id === 'string' || Number.isSafeInteger(id)
  const givenId = isId ? parsePathId(String(id)) : null
  if (id !== undefined && givenId === null) throw new FatalError('the id is none: write it as text')
  if (userId === undefined && givenId !== null) return givenId
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
  if (givenId !== null && givenId !== member.id) {
    throw new FatalError('its id is not the id of its userId: leave one of them out')
  }
  return member.id
}
