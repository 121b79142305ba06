import type { Command } from 'commander'
import { findFailedEventIds, type RetryOutcome, recordRetry, retryEvents } from '../audience/events.ts'
import {
  eventLines,
  findExportEnd,
  isoTime,
  readRange,
  recordEventExport,
} from '../audience/export/export-events.ts'
import type { EventPage, ListedEvent } from '../audience/list-events.ts'
import { FatalError } from '../errors.ts'
import { APPLIED } from '../intake/retry-events.ts'
import { EVENTS } from '../operations/events.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { between, collectIds, onDatabase, parseId, parsePath, requireAccount, withJson } from './input.ts'
import { io, type Printable, printError, printMany, printOne } from './io.ts'
import { addOperation, addOperations, inputOf, optionsOf, performHere } from './operation-commands.ts'
import { writeParts } from './output.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 100_000

export function eventsCommand(program: Command): void {
  const group = program
    .command('events')
    .description('inspect and export received events, and retry those that failed')

  const list = addOperation(group, EVENTS.list)
  for (const option of optionsOf(EVENTS.list)) if (option.long !== '--before') list.addOption(option)
  list
    .option('--limit <count>', 'maximum number of events', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async ({ limit, json, ...given }: { limit: number; json?: boolean }) => {
      const input = await inputOf(EVENTS.list, given)
      const events = await onDatabase((database) => readEvents(database, input, limit))
      printMany(events, json === true)
    })

  addOperation(group, EVENTS.show)
    .description('show one event with its content as received')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { result } = await onDatabase((database) => performHere(database, EVENTS.show, { id }))
      printOne(result?.event as Printable, json === true)
    })

  addOperations(group, [EVENTS.setAside, EVENTS.setAsideAll])
  exportCommand(group)

  withJson(group.command('retry'))
    .description('parse and apply failed events again; exits with 1 if one of them fails again')
    .argument(
      '[id...]',
      'ids of events, as `events list` shows them (default: all failed events that were not set aside)',
      collectIds,
    )
    .action(async (ids: bigint[] | undefined, { json }: { json?: boolean }) => {
      const outcomes = await onDatabase((database) => retry(database, ids?.length ? ids : null))
      printMany(outcomes, json === true)
      if (outcomes.some(({ outcome }) => outcome !== APPLIED)) io.exitCode = 1
    })
}

interface ExportOptions {
  account: bigint
  from: string
  to?: string
  output?: string
  json?: boolean
}

function exportCommand(group: Command): void {
  withJson(group.command('export'))
    .description('write the events of an account as NDJSON, in the order in which they were received')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .requiredOption('--from <time>', 'events received from this time on, such as 2026-11-01T09:00Z')
    .option(
      '--to <time>',
      'events received before this time; at most until a minute ago, which is the default',
    )
    .option(
      '--output <file>',
      'write to this file, which only its owner can read, instead of standard output; .gz compresses it',
      parsePath,
    )
    .action(async ({ json, ...options }: ExportOptions) => {
      const result = await onDatabase((database) => exportEvents(database, options))
      if (options.output !== undefined) printOne(result, json === true)
      else printError(`oa-audience: ${result.events} events before ${result.to}.`)
    })
}

/** The next export may begin at `to`. */
async function exportEvents(
  database: Database,
  { account: id, output, ...given }: ExportOptions,
): Promise<{ events: number; to: string }> {
  const account = await requireAccount(database, id)
  const range = readRange(given, await findExportEnd(database))
  await recordEventExport(database, commandActor(), account, range)
  const events = await writeParts(eventLines(database.reads.streams(), id, range), 'events', output)
  return { events, to: isoTime(range.toUs) }
}

async function readEvents(database: Database, input: object, limit: number): Promise<ListedEvent[]> {
  const events: ListedEvent[] = []
  for (let before: string | null = null; ; ) {
    const page = EVENTS.list.check({ ...input, ...(before !== null && { before }) })
    const { result } = await performHere(database, EVENTS.list, { input: page })
    const { events: read, next } = result as EventPage
    events.push(...read)
    if (next === null || events.length >= limit) return events.slice(0, limit)
    before = next
  }
}

async function retry(database: Database, ids: bigint[] | null): Promise<RetryOutcome[]> {
  const failed = await findFailedEventIds(database, ids)
  const absent = ids?.filter((id) => !failed.includes(id)) ?? []
  if (absent.length > 0)
    throw new FatalError(
      `no failed event has the id ${absent.join(', ')}. Run "oa-audience events list --status failed" to see all failed events.`,
    )
  if (failed.length > 0) await recordRetry(database, commandActor(), failed, null)
  return retryEvents(database, failed)
}
