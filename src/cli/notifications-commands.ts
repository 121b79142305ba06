/** `oa-audience notifications`: where messages about broken accounts are sent. */
import { responseLine } from '../endpoints/endpoint-health.ts'
import { CHANNELS } from '../operations/channels.ts'
import type { ChannelSummary } from '../watch/notifications/channels.ts'
import type { NotificationSummary, TestResult } from '../watch/notifications/history.ts'
import type { CliCommand } from './command.ts'
import { io, type Printable, print, printMany, printOne } from './io.ts'
import { addOperation, addOperations, performHere } from './operation-commands.ts'

export function notificationsCommand(program: CliCommand): void {
  const group = program
    .command('notifications')
    .description('manage the channels that receive a message when an account breaks, and when it recovers')
  addOperations(group, Object.values(CHANNELS))
  listCommand(group)
  showCommand(group)
  testCommand(group)
}

function listCommand(group: CliCommand): void {
  addOperation(group, CHANNELS.list)
    .description('list channels with their last response; the URL of a chat is shown without its path')
    .onDatabase(
      async (database) => (await performHere(database, CHANNELS.list)).result?.channels ?? [],
      (channels) => printMany(channels.map(channelRow)),
    )
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

function showCommand(group: CliCommand): void {
  addOperation(group, CHANNELS.show)
    .description('show a channel and its last messages, as they were sent')
    .limited('messages', 20)
    .onDatabase(
      async (database, id: bigint, { limit }: { limit: number }) => {
        const page = { after: null, limit }
        const { result: shown } = await performHere(database, CHANNELS.show, { id })
        const { result: messages = [] } = await performHere(database, CHANNELS.messages, { id, page })
        return { ...(shown as { channel: ChannelSummary }).channel, messages }
      },
      ({ messages, ...channel }) => {
        printOne(channelRow(channel))
        messages.forEach(printMessage)
      },
    )
}

function printMessage({ id, text, status, answer, attempts, ...times }: NotificationSummary): void {
  const { createdAt, sentAt, failedAt } = times
  const outcome = sentAt ? `sent ${sentAt}` : failedAt ? `failed ${failedAt}` : 'not sent yet'
  const response = answer === null ? '' : `, last response: ${responseLine(status, answer)}`
  print(`\nmessage ${id}, ${createdAt}: ${outcome}, attempts: ${attempts}${response}`)
  // Its lines have no control characters: see one-line.ts.
  for (const line of text.split('\n')) print(`  ${line}`)
}

function testCommand(group: CliCommand): void {
  addOperation(group, CHANNELS.test)
    .description('send a test message now, also if the channel is paused; exits with 1 unless it is accepted')
    .onDatabase(
      async (database, id: bigint) => {
        const { result } = await performHere(database, CHANNELS.test, { id })
        if (!result?.wasAccepted) io.exitCode = 1
        return result as TestResult
      },
      ({ wasAccepted, status, reason, durationMs, text }) => {
        const response = responseLine(status, reason)
        print(`${text}\n\n${wasAccepted ? 'accepted' : 'not accepted'}: ${response} (${durationMs} ms)`)
      },
    )
}
