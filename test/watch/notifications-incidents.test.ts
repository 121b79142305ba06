/** What channels of each format receive when tokens, webhooks and LINE itself break. */
import pino from 'pino'
import { Webhook } from 'standardwebhooks'
import { expect, it, onTestFinished } from 'vitest'
import { CHANNELS } from '../../src/operations/channels.ts'
import { startOutbox } from '../../src/watch/notifications/outbox.ts'
import { openNotificationSender } from '../../src/watch/notifications/send.ts'
import { addShops, playIncidents, untilSent } from '../../tools/demo/incidents.ts'
import { createTestDatabase } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { startMailServer } from '../support/mail-server.ts'
import { runOperation } from '../support/operations.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'

const log = pino({ level: 'silent' })
const { database } = await createTestDatabase()

async function startIncidents() {
  const [platform, chat, webhook, mail] = await Promise.all([
    startPlatform(),
    startReceiver(),
    startReceiver(),
    startMailServer(),
  ])
  const sender = await openNotificationSender({ smtpUrl: mail.url, consoleUrl: null }, () => false)
  onTestFinished(startOutbox(database, sender, log, { pollMs: 20 }))
  const { organizationId, shops } = await addShops(database, platform, 'Shops')
  const add = async (settings: { format: string; target: string }) => {
    const input = { ...settings, organization: String(organizationId), allowPrivateNetwork: true }
    const services = { ownUrls: () => [], canEmail: true }
    const { result } = await runOperation(database, CHANNELS.add, { input, services })
    return result as { id: bigint; secret: string | null }
  }
  await add({ format: 'slack', target: chat.url })
  const added = await add({ format: 'webhook', target: webhook.url })
  await add({ format: 'email', target: 'operators@example.com' })
  const settle = () => untilSent(database, organizationId)
  const verifier = verifierOn(platform, 'https://audience.example.com')
  const parts = { database, platform, verifier, log, organizationId, settle }
  return { parts, shops, chat, webhook, mail, secret: added?.secret ?? '' }
}

it('is one message per channel for a token, for many webhooks, for an outage of LINE, and for each recovery', async () => {
  const { parts, shops, chat, webhook, mail, secret } = await startIncidents()
  await playIncidents(parts, shops)
  const texts = chat.received.map(({ body }) => (JSON.parse(body) as { text: string }).text)
  expect(texts.map((text) => text.split('\n')[0])).toEqual([
    'Shop 1 is broken: Credentials rejected',
    '7 accounts are broken: Webhook URL points to another service',
    'LINE does not respond: the checks of all 8 accounts fail',
    expect.stringMatching(/^LINE responds again after /),
    expect.stringMatching(/^Shop 1 has recovered after \d+ min \(was broken: Credentials rejected\)$/),
    '7 accounts have recovered (were broken: Webhook URL points to another service)',
  ])
  const verifier = new Webhook(secret)
  const messages = webhook.received.map(({ body, headers }) =>
    verifier.verify(body, headers as Record<string, string>),
  ) as Array<{ type: string; data: { before: string; after: string; count: number } }>
  expect(messages.map(({ type, data: { before, after, count } }) => [type, before, after, count])).toEqual([
    ['account.status', 'ok', 'broken', 1],
    ['account.status', 'ok', 'broken', 7],
    ['platform.status', 'up', 'down', 8],
    ['platform.status', 'down', 'up', 8],
    ['account.status', 'broken', 'quiet', 1],
    ['account.status', 'broken', 'quiet', 7],
  ])
  const subjects = mail.mails.map(({ raw }) =>
    /^Subject: (.*?)\r?\n\S/ms.exec(raw)?.[1]?.replace(/\r?\n /g, ' '),
  )
  expect(subjects).toEqual(texts.map((text) => text.split('\n')[0]))
})
