import { type Command, Option } from 'commander'
import { readConfig } from '../config/config.ts'
import { isOwnUrl, ownAddresses } from '../endpoints/address.ts'
import { responseLine } from '../endpoints/endpoint-health.ts'
import { type DeliverySummary, listDeliveries } from '../endpoints/endpoints.ts'
import { isAccepted } from '../endpoints/post.ts'
import type { Rehearsal } from '../endpoints/repliers.ts'
import { EndpointTester, type TestDelivery } from '../endpoints/test-delivery.ts'
import { REHEARSED } from '../operations/endpoint-fields.ts'
import { ENDPOINTS } from '../operations/endpoints.ts'
import type { Transactions } from '../postgres/statement.ts'
import { finishJob } from './follow-job.ts'
import { between, onDatabase } from './input.ts'
import { io, type Printable, print, printJson, printMany, printOne } from './io.ts'
import {
  addOperation,
  addOperations,
  addRotateCommand,
  inputOf,
  optionsOf,
  performHere,
} from './operation-commands.ts'
import { replayCommand, resendCommand } from './replay-commands.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 100_000

export function endpointsCommand(program: Command): void {
  const group = program
    .command('endpoints')
    .description('manage outgoing webhooks: the tools that receive the events of an account')
  addOperations(group, Object.values(ENDPOINTS))
  addOperation(group, ENDPOINTS.remove)
    .description('remove an endpoint and everything it has not received yet')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      await onDatabase(async (database) => {
        while (!(await performHere(database, ENDPOINTS.remove, { id })).result?.isLast);
      })
      printOne({ id, status: 'removed' }, json === true)
    })
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

interface DeliveriesOptions {
  status?: 'pending' | 'failed'
  limit: number
  json?: boolean
}

function deliveriesCommand(group: Command): void {
  addOperation(group, ENDPOINTS.deliveries)
    .description('list deliveries that the endpoint has not accepted, failed ones first')
    .addOption(
      new Option('--status <status>', 'only deliveries with this status').choices(['pending', 'failed']),
    )
    .option('--limit <count>', 'maximum number of deliveries', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async (id: bigint, { status, limit, json }: DeliveriesOptions) => {
      const deliveries = await onDatabase(async (database) => {
        await performHere(database, ENDPOINTS.show, { id })
        const failed = status === 'pending' ? [] : await listDeliveries(database, id, 'failed', { limit })
        const rest = { limit: status === 'failed' ? 0 : limit - failed.length }
        return [...failed, ...(await listDeliveries(database, id, 'pending', rest))]
      })
      printMany(json ? deliveries : deliveries.map(deliveryRow), json === true)
    })
}

function deliveryRow(delivery: DeliverySummary): Printable {
  const { id, status, type, memberId, events, isReplay, attempts, createdAt, dueAt, lastStatus, lastAnswer } =
    delivery
  const content = type === null ? `${events} events` : memberId === null ? type : `${type} ${memberId}`
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

function retryCommand(group: Command): void {
  addOperation(group, ENDPOINTS.retry)
    .description('send all failed deliveries of an endpoint again')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { done } = await onDatabase(async (database) => {
        const { job } = await performHere(database, ENDPOINTS.retry, { id })
        return finishJob(database, job as bigint)
      })
      printOne({ id, retried: Number(done) }, json === true)
    })
}

function testCommand(group: Command): void {
  addOperation(group, ENDPOINTS.test)
    .description('send a test message now, apart from the queue, and print the request and the response')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { publicUrl, host, port } = readConfig(io.env)
      const own = ownAddresses(publicUrl, host, port)
      const endpointTester = new EndpointTester((url) => isOwnUrl(url, own))
      const { result } = await onDatabase((database) =>
        performHere(database, ENDPOINTS.test, { id }, { endpointTester }),
      )
      const delivery = result as TestDelivery
      if (json) printJson(delivery)
      else for (const line of linesOf(delivery)) print(line)
      if (!isAccepted(delivery.response)) io.exitCode = 1
    })
}

function rehearseCommand(group: Command): void {
  const command = addOperation(group, ENDPOINTS.rehearse).description(
    'count the people to whom another endpoint would reply after a change; changes nothing',
  )
  const settings = { ...ENDPOINTS.update, input: REHEARSED }
  for (const option of optionsOf(settings)) command.addOption(option)
  command.action(async (id: bigint, { json, ...given }: { json?: boolean }) => {
    const input = { change: JSON.stringify(await inputOf(settings, given)) }
    const { result } = await onDatabase((database) =>
      // Counting may take longer than a request may.
      database.session((session) => performHere(session as Transactions, ENDPOINTS.rehearse, { id, input })),
    )
    const { members, moves } = result as Rehearsal
    if (json) return printJson({ id, members, moves })
    printMany(
      moves.map(({ people, from, to }) => ({ people, 'from endpoint': from, 'to endpoint': to })),
      false,
    )
    print(`${members} members were examined.`)
  })
}

/** As HTTP writes them. The response has no control characters: see test-delivery.ts. */
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
