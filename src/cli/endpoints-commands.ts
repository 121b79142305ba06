import { Option } from 'commander'
import { responseLine } from '../endpoints/endpoint-health.ts'
import { type DeliverySummary, listDeliveries } from '../endpoints/endpoints.ts'
import { isAccepted } from '../endpoints/post.ts'
import { RATE_DEFAULT, RATE_MAX } from '../endpoints/replays.ts'
import type { Rehearsal } from '../endpoints/repliers.ts'
import type { TestDelivery } from '../endpoints/test-delivery.ts'
import { age } from '../http/times.ts'
import { counted } from '../observability/one-line.ts'
import { REHEARSED } from '../operations/endpoint-fields.ts'
import { ENDPOINTS } from '../operations/endpoints.ts'
import type { Outcome } from '../operations/operation.ts'
import { REPLAYS } from '../operations/replays.ts'
import type { Database } from '../postgres/database.ts'
import type { Transactions } from '../postgres/statement.ts'
import { withFilters } from './audience-command.ts'
import { between, type CliCommand } from './command.ts'
import { finishJob, followJob, reportEnd } from './follow-job.ts'
import { io, type Printable, print, printError, printMany } from './io.ts'
import {
  addOperation,
  addOperations,
  addRotateCommand,
  inputOf,
  optionsOf,
  performHere,
} from './operation-commands.ts'

export function endpointsCommand(program: CliCommand): void {
  const group = program
    .command('endpoints')
    .description('manage outgoing webhooks: the tools that receive the events of an account')
  addOperations(group, Object.values(ENDPOINTS))
  addRotateCommand(group, ENDPOINTS, {
    description: 'print a new secret; the previous one signs, too, until --finish',
    finish: 'stop signing with the previous secret',
    discard: 'go back: stop signing with the new secret',
  })
  deliveriesCommand(group)
  retryCommand(group)
  replayCommand(group)
  resendCommand(group)
  testCommand(group)
  rehearseCommand(group)
}

function deliveriesCommand(group: CliCommand): void {
  addOperation(group, ENDPOINTS.deliveries)
    .description('list deliveries that the endpoint has not accepted, failed ones first')
    .addOption(
      new Option('--status <status>', 'only deliveries with this status').choices(['pending', 'failed']),
    )
    .limited('deliveries')
    .onDatabase(
      async (database, id: bigint, { status, limit }: { status?: 'pending' | 'failed'; limit: number }) => {
        await performHere(database, ENDPOINTS.show, { id })
        const failed = status === 'pending' ? [] : await listDeliveries(database, id, 'failed', { limit })
        const rest = { limit: status === 'failed' ? 0 : limit - failed.length }
        return [...failed, ...(await listDeliveries(database, id, 'pending', rest))]
      },
      (deliveries) => printMany(deliveries.map(deliveryRow)),
    )
}

function deliveryRow(delivery: DeliverySummary): Printable {
  const { id, status, type, memberId, events, isReplay, attempts, createdAt, dueAt, lastStatus, lastAnswer } =
    delivery
  const content =
    type === null ? counted(Number(events), 'event') : memberId === null ? type : `${type} ${memberId}`
  return {
    id,
    status,
    content: isReplay ? `${content}, again` : content,
    attempts,
    'created at': createdAt,
    'next attempt': dueAt,
    'last response': lastAnswer === null ? null : responseLine(lastStatus, lastAnswer),
  }
}

function retryCommand(group: CliCommand): void {
  addOperation(group, ENDPOINTS.retry)
    .description('send all failed deliveries of an endpoint again')
    .onDatabase(async (database, id: bigint) => {
      const { job } = await performHere(database, ENDPOINTS.retry, { id })
      const { done } = await finishJob(database, job as bigint)
      return { id, retried: Number(done) }
    })
}

function replayCommand(group: CliCommand): void {
  const command = addOperation(group, REPLAYS.replay).description(
    'send the stored events of a time range again, in order, with isRedelivery and without reply tokens',
  )
  for (const option of optionsOf(REPLAYS.replay)) command.addOption(option)
  command.onDatabase(async (database, id: bigint, given: Record<string, unknown>) => {
    const input = REPLAYS.replay.check(await inputOf(REPLAYS.replay, given))
    const started = await performHere(database, REPLAYS.replay, { id, input })
    return follow(database, 'events', started, given)
  })
}

function resendCommand(group: CliCommand): void {
  withFilters(addOperation(group, REPLAYS.resend))
    .description('send the present state of all members that match, each as member.updated')
    .option('--rate <count>', 'members per second at most', between(1, RATE_MAX), RATE_DEFAULT)
    .onDatabase(async (database, id: bigint, { rate, json, ...filters }: Record<string, unknown>) => {
      const input = REPLAYS.resend.check({ filters, rate })
      const started = await performHere(database, REPLAYS.resend, { id, input })
      return follow(database, 'members', started, { rate, json })
    })
}

type Counted = { count: number; isMore: boolean; range: string; seconds: number }

/** `12,345 events from … to …, about 4 min at 50/s`. With --json, the job goes on while the service runs. */
async function follow(
  database: Database,
  unit: 'events' | 'members',
  { job: id, result }: Outcome<Counted>,
  { rate, json }: { rate?: unknown; json?: unknown },
) {
  const [job, { count, isMore, range, seconds }] = [id as bigint, result as Counted]
  if (json) return { job, [unit]: count, seconds }
  const [more, about] = isMore ? ['more than ', 'more than'] : ['', 'about']
  printError(`${more}${count.toLocaleString('en')} ${unit}${range}, ${about} ${age(seconds)} at ${rate}/s`)
  const ended = await followJob(database, job, unit)
  const refused = Number(ended?.tally.refused ?? 0)
  reportEnd(ended)
  return { job, status: ended?.status ?? null, sent: ended && ended.done - BigInt(refused), refused }
}

function testCommand(group: CliCommand): void {
  addOperation(group, ENDPOINTS.test)
    .description('send a test message now, apart from the queue, and print the request and the response')
    .onDatabase(
      async (database, id: bigint) => {
        const { result } = await performHere(database, ENDPOINTS.test, { id })
        const delivery = result as TestDelivery
        if (!isAccepted(delivery.response)) io.exitCode = 1
        return delivery
      },
      (delivery) => print(linesOf(delivery).join('\n')),
    )
}

function rehearseCommand(group: CliCommand): void {
  const command = addOperation(group, ENDPOINTS.rehearse).description(
    'count the people to whom another endpoint would reply after a change; changes nothing',
  )
  const settings = { ...ENDPOINTS.update, input: REHEARSED }
  for (const option of optionsOf(settings)) command.addOption(option)
  command.onDatabase(
    async (database, id: bigint, given: Record<string, unknown>) => {
      const input = { change: JSON.stringify(await inputOf(settings, given)) }
      // Counting may take longer than a request may.
      const { result } = await database.session((session) =>
        performHere(session as Transactions, ENDPOINTS.rehearse, { id, input }),
      )
      const { members, moves } = result as Rehearsal
      return { id, members, moves }
    },
    ({ members, moves }) => {
      printMany(moves.map(({ people, from, to }) => ({ people, 'from endpoint': from, 'to endpoint': to })))
      print(`Members examined: ${members}.`)
    },
  )
}

/** Writes headers as HTTP does. The response has no control characters: see test-delivery.ts. */
function linesOf({ request, response }: TestDelivery): string[] {
  const { status, reason, durationMs, headers, body, isCut } = response
  return [
    `POST ${request.url}`,
    ...Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`),
    '',
    request.body,
    '',
    `${status ?? reason} (${durationMs} ms)`,
    ...headers.map(([name, value]) => `${name}: ${value}`),
    ...(body === '' ? [] : ['', body]),
    ...(isCut ? ['…'] : []),
  ]
}
