import { type Command, Option } from 'commander'
import { readConfig } from '../config/config.ts'
import { ownAddresses } from '../endpoints/address.ts'
import type { EndpointFormat, EndpointSettings } from '../endpoints/settings.ts'
import { FatalError } from '../errors.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operator/actor.ts'
import { countText, responseLine } from '../operator/endpoints/endpoint-health.ts'
import {
  type DeliverySummary,
  type EndpointSummary,
  endpointExists,
  listDeliveries,
  listEndpoints,
} from '../operator/endpoints/endpoints.ts'
import {
  addEndpoint,
  endRotation,
  findEndpointOf,
  pause,
  removeBatch,
  rotate,
  updateEndpoint,
} from '../operator/endpoints/manage-endpoints.ts'
import { age } from '../operator/format.ts'
import { startEndpointRetry, startResumption } from '../operator/jobs/endpoint-backlog.ts'
import type { JobSummary } from '../operator/jobs/job.ts'
import type { Database } from '../postgres/database.ts'
import { testCommand } from './endpoint-test-command.ts'
import { followJob, runJob } from './follow-job.ts'
import { between, notFound, onDatabase, parseId, requireAccount, withJson } from './input.ts'
import { io, type Printable, printJson, printMany, printOne } from './io.ts'
import { replayCommand, resendCommand } from './replay-commands.ts'
import { addChangeCommand } from './shared-commands.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 100_000

export function endpointsCommand(program: Command): void {
  const group = program
    .command('endpoints')
    .description('manage outgoing webhooks: the tools that receive the events of an account')
  addCommand(group)
  listCommand(group)
  updateCommand(group)
  changeCommands(group)
  rotateCommand(group)
  deliveriesCommand(group)
  retryCommand(group)
  replayCommand(group)
  resendCommand(group)
  testCommand(group)
}

interface AddOptions {
  account: bigint
  url: string
  name?: string
  format: EndpointFormat
  events?: string[]
  replies?: boolean
  allowPrivateNetwork?: boolean
  json?: boolean
}

function addCommand(group: Command): void {
  withJson(group.command('add'))
    .description('add an endpoint and print its id and, for members, its secret, which is not shown again')
    .requiredOption('--account <id>', 'id of the account, as `accounts list` shows it', parseId)
    .requiredOption('--url <url>', 'https:// URL that receives the webhooks')
    .option('--name <text>', 'display name')
    .addOption(
      new Option(
        '--format <format>',
        'line: events as LINE sends them; members: changes of the audience, by Standard Webhooks',
      )
        .choices(['line', 'members'])
        .default('line'),
    )
    .option('--events <list>', 'event types, separated by commas (default: all)', parseList)
    .option('--replies', 'receive reply tokens; only one endpoint of an account may have them')
    .option('--allow-private-network', 'allow http, and addresses that are not public')
    .action(async ({ account, json, events, replies, allowPrivateNetwork, ...given }: AddOptions) => {
      const { publicUrl, host, port } = readConfig(io.env)
      const endpoint = {
        ...given,
        name: given.name ?? '',
        accountId: account,
        events: events ?? null,
        replies: replies === true,
        allowPrivateNetwork: allowPrivateNetwork === true,
      }
      const added = await onDatabase((database) =>
        addEndpoint(database, commandActor(), endpoint, ownAddresses(publicUrl, host, port)),
      )
      printOne({ id: added.id, secret: added.secret }, json === true)
    })
}

const parseList = (text: string): string[] =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')

interface UpdateOptions extends Partial<Omit<EndpointSettings, 'events'>> {
  events?: string[]
  json?: boolean
}

function updateCommand(group: Command): void {
  withJson(group.command('update'))
    .description('change an endpoint; its backlog is kept and sent to the new URL; the format cannot change')
    .argument('<id>', 'id of the endpoint, as `endpoints list` shows it', parseId)
    .option('--url <url>', 'https:// URL that receives the webhooks')
    .option('--name <text>', 'display name')
    .option('--events <list>', 'event types, separated by commas, or `all`; queued events stay', parseList)
    .option('--replies', 'receive reply tokens; only one endpoint of an account may have them')
    .option('--no-replies', 'receive no reply tokens')
    .option('--allow-private-network', 'allow http, and addresses that are not public')
    .option('--no-allow-private-network', 'allow only https and public addresses')
    .action(async (id: bigint, { json, events, ...given }: UpdateOptions) => {
      const changes = { ...given, ...(events && { events: events.join() === 'all' ? null : events }) }
      if (Object.keys(changes).length === 0)
        throw new FatalError('nothing to change. Give at least one option.')
      const { publicUrl, host, port } = readConfig(io.env)
      await onDatabase(async (database) => {
        const own = ownAddresses(publicUrl, host, port)
        const updated = await updateEndpoint(database, commandActor(), id, changes, own)
        if (updated.jobId !== null) await followJob(database, updated.jobId, null)
      })
      printOne({ id, status: 'updated' }, json === true)
    })
}

function listCommand(group: Command): void {
  withJson(group.command('list'))
    .description('list endpoints with their backlog and last response, without their secrets')
    .option('--account <id>', 'only endpoints of this account', parseId)
    .action(async ({ account, json }: { account?: bigint; json?: boolean }) => {
      const endpoints = await onDatabase(async (database) => {
        if (account !== undefined) await requireAccount(database, account)
        return database.session((session) => listEndpoints(session, ALL_ORGANIZATIONS, account ?? null))
      })
      if (json) printJson(endpoints.map(({ accountName: _, ...endpoint }) => endpoint))
      else printMany(endpoints.map(endpointRow), false)
    })
}

function endpointRow(endpoint: EndpointSummary): Printable {
  const { oldestPendingSeconds: oldest, lastAnswer } = endpoint
  return {
    id: endpoint.id,
    account: endpoint.accountId,
    name: endpoint.name || null,
    format: endpoint.format,
    events: endpoint.events?.join(',') ?? 'all',
    replies: endpoint.replies ? 'yes' : 'no',
    status: endpoint.isRotating ? `${endpoint.status}, rotating` : endpoint.status,
    pending: countText(endpoint.pending),
    failed: countText(endpoint.failed),
    oldest: oldest === null ? null : age(oldest),
    url: endpoint.url,
    'last response': lastAnswer && responseLine(lastAnswer.status, lastAnswer.text),
  }
}

function changeCommands(group: Command): void {
  const add = addChangeCommand.bind(null, group, 'endpoint')
  add(['pause', 'paused'], 'stop sending; what is not sent yet is kept', (database, id) =>
    pause(database, commandActor(), id),
  )
  add(['resume', 'active'], 'send again, beginning with what is kept', async (database, id) => {
    await runJobOf(database, id, startResumption)
  })
  add(['remove', 'removed'], 'remove an endpoint and everything it has not received yet', remove)
}

async function remove(database: Database, id: bigint): Promise<void> {
  while (!(await removeBatch(database, commandActor(), id)).isLast);
}

interface RotateOptions {
  finish?: boolean
  discard?: boolean
  json?: boolean
}

function rotateCommand(group: Command): void {
  withJson(group.command('rotate'))
    .description('print a new secret; the previous one signs, too, until --finish')
    .argument('<id>', 'id of an endpoint of the format members', parseId)
    .addOption(new Option('--finish', 'stop signing with the previous secret').conflicts('discard'))
    .option('--discard', 'go back: stop signing with the new secret')
    .action(async (id: bigint, { finish, discard, json }: RotateOptions) => {
      if (finish || discard) {
        const kept = finish ? 'new' : 'previous'
        await onDatabase((database) => endRotation(database, commandActor(), id, kept))
        printOne({ id, status: finish ? 'finished' : 'discarded' }, json === true)
        return
      }
      const secret = await onDatabase((database) => rotate(database, commandActor(), id))
      printOne({ id, secret }, json === true)
    })
}

interface DeliveriesOptions {
  status?: 'pending' | 'failed'
  limit: number
  json?: boolean
}

function deliveriesCommand(group: Command): void {
  withJson(group.command('deliveries'))
    .description('list deliveries that the endpoint has not accepted, failed ones first')
    .argument('<id>', 'id of the endpoint, as `endpoints list` shows it', parseId)
    .addOption(
      new Option('--status <status>', 'only deliveries with this status').choices(['pending', 'failed']),
    )
    .option('--limit <count>', 'maximum number of deliveries', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async (id: bigint, { status, limit, json }: DeliveriesOptions) => {
      const deliveries = await onDatabase(async (database) => {
        if (!(await endpointExists(database, id))) throw notFound('endpoint', id)
        return listDeliveries(database, id, status ?? null, limit)
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
  withJson(group.command('retry'))
    .description('send all failed deliveries of an endpoint again')
    .argument('<id>', 'id of the endpoint, as `endpoints list` shows it', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const { done } = await onDatabase((database) =>
        runJobOf(database, id, (...started) => startEndpointRetry(...started, null)),
      )
      printOne({ id, retried: Number(done) }, json === true)
    })
}

async function runJobOf(database: Database, id: bigint, start: typeof startResumption): Promise<JobSummary> {
  const endpoint = await findEndpointOf(database, commandActor(), id)
  return runJob(database, null, (transaction) => start(transaction, commandActor(), endpoint))
}
