/** `oa-audience notifications`: where messages about broken accounts are sent. */
import { type Command, Option } from 'commander'
import { readConfig } from '../config/config.ts'
import { isOwnUrl, ownAddresses } from '../endpoints/address.ts'
import { FatalError } from '../errors.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operator/actor.ts'
import { responseLine } from '../operator/endpoints/endpoint-health.ts'
import {
  CHANNEL_FORMATS,
  type ChannelFormat,
  type ChannelSettings,
  type ChannelSummary,
  findChannel,
  listChannels,
} from '../operator/notifications/channels.ts'
import {
  ChannelTester,
  listNotifications,
  type NotificationSummary,
  testChannel,
} from '../operator/notifications/history.ts'
import {
  addChannel,
  type ChannelLimits,
  removeChannel,
  setChannelStatus,
  updateChannel,
} from '../operator/notifications/manage-channels.ts'
import { openNotificationSender } from '../operator/notifications/send.ts'
import type { Database } from '../postgres/database.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { io, type Printable, print, printJson, printMany, printOne } from './io.ts'
import { readSecrets } from './questions.ts'

/** The URL of a chat's webhook is a credential. */
const SECRET_FLAGS = { target: '--target' }
const MESSAGES_DEFAULT = 20
const MESSAGES_MAX = 1_000

export function notificationsCommand(program: Command): void {
  const group = program
    .command('notifications')
    .description('manage the channels that receive a message when an account breaks, and when it recovers')
  addCommand(group)
  listCommand(group)
  showCommand(group)
  updateCommand(group)
  testCommand(group)
  changeCommands(group)
}

interface Options {
  name?: string
  target?: string
  allowPrivateNetwork?: boolean
  json?: boolean
}

const withSettings = (command: Command): Command =>
  command
    .option('--name <text>', 'display name')
    .option('--allow-private-network', 'allow http, and addresses that are not public')

const TARGET_HELP = 'URL of the webhook, or address of the mailbox; - reads it from standard input'

interface AddOptions extends Options {
  format: ChannelFormat
  target: string
  organization?: bigint
}

function addCommand(group: Command): void {
  withSettings(withJson(group.command('add')))
    .description('add a channel and print its id and, for webhook, its secret, which is not shown again')
    .addOption(
      new Option(
        '--format <format>',
        'slack: Slack, Mattermost, Google Chat and others; webhook: signed JSON',
      )
        .choices(CHANNEL_FORMATS)
        .makeOptionMandatory(),
    )
    .requiredOption('--target <target>', TARGET_HELP)
    .option('--organization <id>', 'only accounts of this organization (default: all)', parseId)
    .action(async (given: AddOptions) => {
      const { format, organization = null, json, ...options } = await readSecrets({ ...given }, SECRET_FLAGS)
      const channel = {
        ...{ name: '', allowPrivateNetwork: false },
        ...settingsOf(options),
        ...{ target: options.target, format, organizationId: organization },
      }
      const added = await onDatabase((database) =>
        addChannel(database, commandActor(), channel, channelLimits()),
      )
      printOne({ id: added.id, secret: added.secret }, json === true)
    })
}

/** Only the given ones. */
function settingsOf(options: Options): Partial<ChannelSettings> {
  const { name, target, allowPrivateNetwork } = options
  return {
    ...(name === undefined ? {} : { name }),
    ...(target === undefined ? {} : { target: target.trim() }),
    ...(allowPrivateNetwork === undefined ? {} : { allowPrivateNetwork }),
  }
}

function channelLimits(): ChannelLimits {
  const { publicUrl, host, port, smtpUrl } = readConfig(io.env)
  return { own: ownAddresses(publicUrl, host, port), canEmail: smtpUrl !== null }
}

function listCommand(group: Command): void {
  withJson(group.command('list'))
    .description('list channels with their last response; the URL of a chat is shown without its path')
    .action(async ({ json }: { json?: boolean }) => {
      const channels = await onDatabase((database) => listChannels(database, ALL_ORGANIZATIONS))
      if (json) printJson(channels)
      else printMany(channels.map(channelRow), false)
    })
}

function channelRow(channel: ChannelSummary): Printable {
  const { lastResponse } = channel
  return {
    id: channel.id,
    organization: channel.organizationName ?? 'all',
    name: channel.name || null,
    format: channel.format,
    target: channel.target,
    status: channel.status,
    pending: channel.pending,
    failed: channel.failed,
    'last response': lastResponse && responseLine(lastResponse.status, lastResponse.reason),
  }
}

function showCommand(group: Command): void {
  withJson(group.command('show'))
    .description('show a channel and its last messages, as they were sent')
    .argument(...CHANNEL)
    .option('--limit <count>', 'maximum number of messages', between(0, MESSAGES_MAX), MESSAGES_DEFAULT)
    .action(async (id: bigint, { limit, json }: { limit: number; json?: boolean }) => {
      const { channel, messages } = await onDatabase(async (database) => ({
        channel: await findChannel(database, ALL_ORGANIZATIONS, id),
        messages: await listNotifications(database, ALL_ORGANIZATIONS, id, { beforeId: null, limit }),
      }))
      if (json) return printJson({ ...channel, messages })
      printOne(channelRow(channel), false)
      for (const message of messages) printMessage(message)
    })
}

function printMessage({ id, text, status, answer, attempts, ...times }: NotificationSummary): void {
  const { createdAt, sentAt, failedAt } = times
  const outcome = sentAt ? `sent ${sentAt}` : failedAt ? `failed ${failedAt}` : 'not sent yet'
  const response = answer === null ? '' : `, last response: ${responseLine(status, answer)}`
  print(`\nmessage ${id}, ${createdAt}: ${outcome}, attempts: ${attempts}${response}`)
  // Its lines have no control characters: see one-line.ts.
  for (const line of text.split('\n')) print(`  ${line}`)
}

function updateCommand(group: Command): void {
  withSettings(withJson(group.command('update')))
    .description('change a channel; waiting messages are sent to the new target; the format cannot change')
    .argument(...CHANNEL)
    .option('--target <target>', TARGET_HELP)
    .option('--no-allow-private-network', 'allow only https and public addresses')
    .action(async (id: bigint, given: Options) => {
      const { json, ...options } = await readSecrets({ ...given }, SECRET_FLAGS)
      const changes = settingsOf(options)
      if (Object.keys(changes).length === 0)
        throw new FatalError('nothing to change. Give at least one option.')
      await onDatabase((database) => updateChannel(database, commandActor(), id, changes, channelLimits()))
      printOne({ id, status: 'updated' }, json === true)
    })
}

function testCommand(group: Command): void {
  withJson(group.command('test'))
    .description('send a test message now, also if the channel is paused; exits with 1 unless it is accepted')
    .argument(...CHANNEL)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const config = readConfig(io.env)
      const { own } = channelLimits()
      const sender = await openNotificationSender(config, (url) => isOwnUrl(url, own))
      const result = await onDatabase((database) =>
        testChannel(database, commandActor(), id, new ChannelTester(sender)),
      )
      const { wasAccepted, status, reason, durationMs, text } = result
      if (json) printJson(result)
      else {
        const response = responseLine(status, reason)
        print(`${text}\n\n${wasAccepted ? 'accepted' : 'not accepted'}: ${response} (${durationMs} ms)`)
      }
      if (!wasAccepted) io.exitCode = 1
    })
}

type Change = (database: Database, id: bigint) => Promise<void>

function changeCommands(group: Command): void {
  const changes: Array<[name: string, status: string, description: string, change: Change]> = [
    [
      ...(['pause', 'paused', 'stop sending; nothing new is collected for the channel'] as const),
      (database, id) => setChannelStatus(database, commandActor(), id, 'paused'),
    ],
    [
      ...(['resume', 'active', 'send again, beginning with what has waited for less than a day'] as const),
      (database, id) => setChannelStatus(database, commandActor(), id, 'active'),
    ],
    [
      ...(['remove', 'removed', 'remove a channel and its messages'] as const),
      (database, id) => removeChannel(database, commandActor(), id),
    ],
  ]
  for (const [name, status, description, change] of changes) {
    withJson(group.command(name))
      .description(description)
      .argument(...CHANNEL)
      .action(async (id: bigint, { json }: { json?: boolean }) => {
        await onDatabase((database) => change(database, id))
        printOne({ id, status }, json === true)
      })
  }
}

const CHANNEL = ['<id>', 'id of the channel, as `notifications list` shows it', parseId] as const
