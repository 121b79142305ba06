/** `oa-audience notifications`: where messages about broken accounts are sent. */
import type { Command } from 'commander'
import { readConfig } from '../config/config.ts'
import { isOwnUrl, ownAddresses } from '../endpoints/address.ts'
import { responseLine } from '../endpoints/endpoint-health.ts'
import { CHANNELS } from '../operations/channels.ts'
import type { ChannelSummary } from '../watch/notifications/channels.ts'
import { ChannelTester, type NotificationSummary, type TestResult } from '../watch/notifications/history.ts'
import { openNotificationSender } from '../watch/notifications/send.ts'
import { between, onDatabase } from './input.ts'
import { io, type Printable, print, printJson, printMany, printOne } from './io.ts'
import { addOperation, addOperations, performHere } from './operation-commands.ts'

const MESSAGES_DEFAULT = 20
const MESSAGES_MAX = 1_000

export function notificationsCommand(program: Command): void {
  const group = program
    .command('notifications')
    .description('manage the channels that receive a message when an account breaks, and when it recovers')
  addOperations(group, Object.values(CHANNELS))
  listCommand(group)
  showCommand(group)
  testCommand(group)
}

function listCommand(group: Command): void {
  addOperation(group, CHANNELS.list)
    .description('list channels with their last response; the URL of a chat is shown without its path')
    .action(async ({ json }: { json?: boolean }) => {
      const { result } = await onDatabase((database) => performHere(database, CHANNELS.list))
      const channels = result?.channels ?? []
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
    language: channel.language,
    target: channel.target,
    status: channel.status,
    pending: channel.pending,
    failed: channel.failed,
    'last response': lastResponse && responseLine(lastResponse.status, lastResponse.reason),
  }
}

function showCommand(group: Command): void {
  addOperation(group, CHANNELS.show)
    .description('show a channel and its last messages, as they were sent')
    .option('--limit <count>', 'maximum number of messages', between(0, MESSAGES_MAX), MESSAGES_DEFAULT)
    .action(async (id: bigint, { limit, json }: { limit: number; json?: boolean }) => {
      const { channel, messages } = await onDatabase(async (database) => ({
        ...(await performHere(database, CHANNELS.show, { id })).result,
        messages: (await performHere(database, CHANNELS.messages, { id, page: { after: null, limit } }))
          .result,
      }))
      if (json) return printJson({ ...channel, messages })
      printOne(channelRow(channel as ChannelSummary), false)
      for (const message of messages ?? []) printMessage(message)
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

function testCommand(group: Command): void {
  addOperation(group, CHANNELS.test)
    .description('send a test message now, also if the channel is paused; exits with 1 unless it is accepted')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const config = readConfig(io.env)
      const own = ownAddresses(config.publicUrl, config.host, config.port)
      const channelTester = new ChannelTester(
        await openNotificationSender(config, (url) => isOwnUrl(url, own)),
      )
      const { result } = await onDatabase((database) =>
        performHere(database, CHANNELS.test, { id }, { channelTester }),
      )
      const { wasAccepted, status, reason, durationMs, text } = result as TestResult
      if (json) printJson(result)
      else {
        const response = responseLine(status, reason)
        print(`${text}\n\n${wasAccepted ? 'accepted' : 'not accepted'}: ${response} (${durationMs} ms)`)
      }
      if (!wasAccepted) io.exitCode = 1
    })
}
