/** `oa-audience endpoints replay|resend`: sends again what a receiver has missed. */
import { checkFilters, readFilters } from '../audience/filters.ts'
import { countMatching } from '../audience/select-list.ts'
import { countReplay, findResendable, planReplay, secondsOf } from '../endpoints/start-replay.ts'
import { FatalError } from '../errors.ts'
import { age } from '../http/format.ts'
import { startReplay } from '../jobs/replay-events.ts'
import { RATE_DEFAULT, RATE_MAX } from '../jobs/replay-pace.ts'
import { startResend } from '../jobs/resend-members.ts'
import { scopeOfJob } from '../jobs/selection.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable } from '../postgres/statement.ts'
import { withFilters } from './audience-command.ts'
import { between, type CliCommand, parseId } from './command.ts'
import { followJob, reportEnd } from './follow-job.ts'
import { io, printError } from './io.ts'
import { ask } from './questions.ts'

interface JobOptions {
  rate: number
  yes?: boolean | undefined
  wait: boolean
  json?: boolean | undefined
}

const withJobOptions = (command: CliCommand, unit: string): CliCommand =>
  command
    .option('--rate <count>', `${unit} per second at most`, between(1, RATE_MAX), RATE_DEFAULT)
    .option('--yes', 'do not ask for confirmation')
    .option('--no-wait', 'start the task, print its id and end')

export function replayCommand(group: CliCommand): void {
  withJobOptions(group.command('replay'), 'events')
    .description(
      'send the stored events of a time range again, in order, with isRedelivery and without reply tokens',
    )
    .argument('<id>', 'id of an endpoint of the format line', parseId)
    .requiredOption(
      '--from <time>',
      'ISO 8601 with an offset or Z, or a date (00:00 UTC): events received from then on',
    )
    .requiredOption('--to <time>', 'events received before this time, and at least 10 s ago')
    .option('--events <list>', 'event types, separated by commas (default: all that the endpoint receives)')
    .onDatabase(
      async (
        database,
        id: bigint,
        { from, to, events, ...options }: JobOptions & { from: string; to: string; events?: string },
      ) => {
        const kinds = events?.split(',').map((kind) => kind.trim())
        const asked = { from, to, rate: options.rate, events: kinds }
        const { endpoint, request } = await planReplay(database, ALL_ORGANIZATIONS, id, asked)
        const { events: count, isMore } = await countReplay(database, endpoint, request)
        const range = ` from ${request.from} to ${request.to}`
        return run(database, options, { unit: 'events', count, isMore, range }, (transaction) =>
          startReplay(transaction, commandActor(), endpoint, request, isMore ? null : count),
        )
      },
    )
}

export function resendCommand(group: CliCommand): void {
  withFilters(withJobOptions(group.command('resend'), 'members'))
    .description('send the present state of all members that match, each as member.updated')
    .argument('<id>', 'id of an endpoint of the format members', parseId)
    .onDatabase(async (database, id: bigint, { rate, yes, wait, json, ...given }: JobOptions) => {
      const endpoint = await findResendable(database, ALL_ORGANIZATIONS, id)
      const filters = await readFilters(database, endpoint.accountId, checkFilters(given))
      const count = await countMatching(database, scopeOfJob(endpoint), filters)
      const amount = { unit: 'members', count, isMore: false, range: '' } as const
      return run(database, { rate, wait, yes, json }, amount, (transaction) =>
        startResend(transaction, commandActor(), endpoint, { filters, rate }, count),
      )
    })
}

interface Amount {
  unit: 'events' | 'members'
  count: number
  isMore: boolean
  range: string
}

async function run(
  database: Database,
  { rate, yes, wait, json }: JobOptions,
  amount: Amount,
  start: (transaction: Queryable) => Promise<bigint>,
) {
  const { unit, count } = amount
  const seconds = secondsOf(count, rate)
  if (!json) printError(amountLine(amount, rate))
  if (!yes && !json) await confirm()
  const job = await database.transaction(start)
  if (json || !wait) return { job, [unit]: count, seconds }
  const ended = await followJob(database, job, unit)
  const refused = Number(ended?.tally.refused ?? 0)
  const sent = ended && ended.done - BigInt(refused)
  reportEnd(ended)
  return { job, status: ended?.status ?? null, sent, refused }
}

/** `12,345 events from … to …, about 4 min at 50/s` */
function amountLine({ unit, count, isMore, range }: Amount, rate: number): string {
  const number = `${isMore ? 'more than ' : ''}${count.toLocaleString('en')}`
  return `${number} ${unit}${range}, ${isMore ? 'more than' : 'about'} ${age(secondsOf(count, rate))} at ${rate}/s`
}

async function confirm(): Promise<void> {
  if (io.stdin.isTTY !== true) return
  const { answer = '' } = await ask([
    { name: 'answer', text: 'Send them again? (yes or no)', isSecret: false },
  ])
  if (!/^y(es)?$/i.test(answer)) throw new FatalError('nothing was sent.')
}
