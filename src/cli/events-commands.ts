import {
  eventLines,
  findExportEnd,
  isoTime,
  readRange,
  recordEventExport,
} from '../audience/export/export-events.ts'
import { FatalError } from '../errors.ts'
import type { EventPage, ListedEvent } from '../intake/list-events.ts'
import { APPLIED } from '../intake/retry-events.ts'
import { findFailedEventIds, type RetryOutcome, recordRetry, retryEvents } from '../intake/stored-events.ts'
import { counted } from '../observability/one-line.ts'
import { EVENTS } from '../operations/events.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { type CliCommand, collectIds, parseId, parsePath, requireAccount } from './command.ts'
import { io, printError } from './io.ts'
import { addOperation, addOperations, inputOf, optionsOf, performHere } from './operation-commands.ts'
import { writeParts } from './output.ts'

export function eventsCommand(program: CliCommand): void {
  const group = program
    .command('events')
    .description('inspect and export received events, and retry those that failed')

  const list = addOperation(group, EVENTS.list)
  for (const option of optionsOf(EVENTS.list)) if (option.long !== '--after') list.addOption(option)
  list
    .limited('events')
    .onDatabase(async (database, { limit, ...given }: { limit: number }) =>
      readEvents(database, await inputOf(EVENTS.list, given), limit),
    )

  addOperation(group, EVENTS.show)
    .description('show one event with its content as received')
    .onDatabase(async (database, id: bigint) => {
      const { result } = await performHere(database, EVENTS.show, { id })
      return result?.event
    })

  addOperations(group, [EVENTS.setAside, EVENTS.setAsideAll])

  group
    .command('export')
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
    .onDatabase(exportEvents)

  group
    .command('retry')
    .description('parse and apply failed events again; exits with 1 if one of them fails again')
    .argument(
      '[id...]',
      'ids of events, as `events list` shows them (default: all failed events that were not set aside)',
      collectIds,
    )
    .onDatabase(async (database, ids: bigint[] = []) => {
      const outcomes = await retry(database, ids.length > 0 ? ids : null)
      if (outcomes.some(({ outcome }) => outcome !== APPLIED)) io.exitCode = 1
      return outcomes
    })
}

interface ExportOptions {
  account: bigint
  from: string
  to?: string
  output?: string
}

/** The next export may begin at `to`. */
async function exportEvents(database: Database, { account: id, output, ...given }: ExportOptions) {
  const account = await requireAccount(database, id)
  const range = readRange(given, await findExportEnd(database))
  await recordEventExport(database, commandActor(), account, range)
  const events = await writeParts(eventLines(database.reads.streams(), id, range), output, 'events')
  const to = isoTime(range.toUs)
  if (output !== undefined) return { events, to }
  printError(`oa-audience: ${counted(events, 'event')} before ${to}.`)
  return undefined
}

async function readEvents(database: Database, input: object, limit: number): Promise<ListedEvent[]> {
  const events: ListedEvent[] = []
  for (let before: string | null = null; ; ) {
    const page = EVENTS.list.check({ ...input, ...(before !== null && { after: before }) })
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
