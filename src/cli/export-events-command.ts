/** Writes the events of an account to a file or to standard output. */
import type { AccountId } from '../accounts/account.ts'
import {
  type EventRange,
  eventLines,
  findExportEnd,
  isoTime,
  readRange,
  recordEventExport,
} from '../audience/export/export-events.ts'
import { commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { io, printError } from './io.ts'
import { openOutput, type PageOutput } from './output.ts'
import { Progress } from './progress.ts'

const INTERRUPTS = ['SIGINT', 'SIGTERM'] as const
/** Exit code of a command after Ctrl-C. */
const INTERRUPTED = 130

export interface EventExportOptions {
  from: string
  to?: string
  after?: string
  source?: string
  output?: string
  gzip?: boolean
}

type EventExport = {
  events: number
  /** exclusive: the next export may begin here */
  to: string
  /** of the last event; null: there is none */
  position: string | null
}

/** Throws a FatalError for an invalid range or an output that cannot be written. */
export async function exportEvents(
  database: Database,
  account: { id: AccountId; organizationId: bigint },
  options: EventExportOptions,
): Promise<EventExport> {
  const range = readRange(options, await findExportEnd(database))
  const { output: file, after } = options
  const isCompressed = options.gzip === true || file?.endsWith('.gz') === true
  const output = openOutput({ file, isCompressed, isContinued: after !== undefined })
  const tally: EventExport = { events: 0, to: isoTime(range.toUs), position: after ?? null }
  try {
    await recordEventExport(database, commandActor(), account, range)
    await reportingStop(tally, () => writePages(database, account.id, range, { output, file, tally }))
  } finally {
    await output.close()
  }
  return tally
}

async function writePages(
  database: Database,
  accountId: AccountId,
  range: EventRange,
  { output, file, tally }: { output: PageOutput; file: string | undefined; tally: EventExport },
): Promise<void> {
  // A progress bar would overwrite lines that are written to the same terminal.
  const progress = file === undefined && io.stdout.isTTY ? null : new Progress('events', null)
  try {
    for await (const { text, events, position } of eventLines(database.reads.streams(), accountId, range)) {
      if (text !== '') await output.write(text)
      tally.events += events
      tally.position = position
      progress?.show(tally.events)
    }
  } catch (error) {
    // The reader of the output, such as head, has closed the pipe.
    if ((error as { code?: string }).code !== 'EPIPE') throw error
  } finally {
    progress?.end()
  }
}

/** After an error or a signal, says how to continue. */
async function reportingStop(tally: EventExport, work: () => Promise<void>): Promise<void> {
  const report = () => {
    const { events, position } = tally
    printError(
      position === null
        ? 'oa-audience: the export stopped before its first event.'
        : `oa-audience: the export stopped after ${events} events. Repeat the command with --after ${position} to continue.`,
    )
  }
  const interrupt = () => process.exit(INTERRUPTED)
  process.once('exit', report)
  for (const signal of INTERRUPTS) process.once(signal, interrupt)
  try {
    await work()
  } catch (error) {
    report()
    throw error
  } finally {
    process.off('exit', report)
    for (const signal of INTERRUPTS) process.off(signal, interrupt)
  }
}
