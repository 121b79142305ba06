/** CONTRACT: no credential that a body carries is stored, from any source. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { isCredentialName, storedPayload } from '../src/intake/stored-payload.ts'
import { readMigrations } from '../src/postgres/migrate.ts'
import { lineEvent, textMessage } from '../tools/simulator/events.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import * as chatwoot from './support/chatwoot.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { readEverything } from './support/load.ts'
import { setUpTest, startAppForTest } from './support/service.ts'

const MARKER = 'marker-of-a-credential'

/** Names under which public sources keep credentials: Chatwoot's channels and inboxes, OAuth, and common spellings. */
const NAMES = [
  ...['line_channel_secret', 'line_channel_token', 'pubsub_token', 'hmac_token', 'bot_token', 'auth_token'],
  ...['page_access_token', 'user_access_token', 'webhook_verify_token', 'api_key', 'secret', 'smtp_password'],
  ...['imapPassword', 'accessToken', 'idToken', 'id-token', 'client_secret', 'privateKey', 'Authorization'],
]

/** The value with a marker under each name in each of its objects. */
function withMarkers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withMarkers)
  if (typeof value !== 'object' || value === null) return value
  const fields = Object.entries(value).map(([name, field]) => [name, withMarkers(field)])
  return Object.fromEntries([...fields, ...NAMES.map((name) => [name, `${MARKER} ${name}`])])
}

/** channel.rb of Channel::Line as inbox events carry it. */
const inboxEvent = (event: string) => ({
  event,
  id: 3,
  name: 'Corner Coffee',
  channel: {
    id: 1,
    account_id: 1,
    line_channel_id: '2000000001',
    line_channel_secret: MARKER,
    line_channel_token: MARKER,
    provider_config: { nested: [{ api_key: MARKER }] },
  },
})

const CHAT = [
  inboxEvent('inbox_created'),
  inboxEvent('inbox_updated'),
  { event: 'message_created', ...chatwoot.message('Uann') },
  { event: 'conversation_created', ...chatwoot.conversation('Uann') },
  { event: 'conversation_status_changed', ...chatwoot.conversation('Uann') },
  { event: 'contact_updated', ...chatwoot.contact('Uann') },
  { event: 'webwidget_triggered', id: 8, contact: chatwoot.contact('Uann'), current_conversation: {} },
  { event: 'something_new', anything: [{ deep: [{}] }] },
]

const TRACKING = ['track', 'identify', 'page', 'screen', 'group', 'alias'].map((type) => ({
  type,
  userId: 'Uann',
  properties: { path: '/' },
  traits: { address: {} },
  context: { device: {}, page: {} },
}))

/** Tracking events with a marker in each object, and with an ID token of LINE where pages send one. */
const trackingWithMarkers = (idToken: string | null) =>
  TRACKING.map(({ context, ...event }) => {
    const marked = withMarkers({ ...event, context }) as { context: object }
    return { ...marked, context: { ...marked.context, idToken } }
  })

it('stores, logs and answers none of the credentials in any known payload, and keeps all else', async () => {
  const { database } = await createTestDatabase()
  const platform = await simulatePlatform()
  onTestFinished(() => platform.close())
  const { loginChannelId } = platform.account
  const tenant = await addTenant(database, { loginChannelId })
  const lines: string[] = []
  const service = await startAppForTest(database, {
    config: { logLevel: 'trace', lineApiUrl: platform.url },
    log: { write: (line) => void lines.push(line) },
  })
  const answers: string[] = []
  for (const webhook of CHAT) answers.push((await service.chat(tenant, withMarkers(webhook))).text)
  answers.push((await service.track(tenant, trackingWithMarkers(null))).text)
  const idToken = await platform.login.idToken({ userId: 'Uann', loginChannelId })
  answers.push((await service.track(tenant, trackingWithMarkers(idToken))).text)
  const headers = { 'x-line-id-token': idToken }
  const body = JSON.stringify({ writeKey: tenant.trackingKey, batch: trackingWithMarkers(null) })
  answers.push((await service.call('POST', '/api/tracking', { headers, body })).text)
  const refused = (await service.track(tenant, trackingWithMarkers(MARKER))).text
  const kinds = [
    textMessage('Uann', 'hello'),
    ...['follow', 'unfollow', 'postback', 'memberJoined', 'accountLink', 'unknown'].map((kind) =>
      lineEvent(kind, 'Uann'),
    ),
  ]
  for (const event of kinds) answers.push((await service.deliver(tenant, [withMarkers(event)])).text)
  expect(answers.filter((text) => !/"accepted":[1-9]/.test(text))).toEqual([])
  const everything = await readEverything(database)
  expect(everything).toContain('2000000001')
  const places = { everything, log: lines.join(), answers: answers.join(), refused }
  for (const [place, text] of Object.entries(places)) {
    for (const credential of [MARKER, idToken]) expect(text.includes(credential), place).toBe(false)
  }
  await database.close()
})

it("keeps the tokens of LINE's events, and texts that speak of credentials", () => {
  for (const token of ['replyToken', 'quoteToken', 'markAsReadToken']) {
    const event = { ...textMessage('Uann', 'my "secret": token'), [token]: 'kept' }
    expect(JSON.parse(storedPayload(event))).toEqual(event)
  }
})

describe('a name', () => {
  it.each(NAMES)('%s is that of a credential', (name) => expect(isCredentialName(name)).toBe(true))
  it.each(['replyToken', 'quoteToken', 'markAsReadToken', 'tokens', 'secretary', 'key', 'name'])(
    '%s is not that of a credential',
    (name) => expect(isCredentialName(name)).toBe(false),
  )
})

it('removes by a migration what was stored before, and nothing else', async () => {
  const { database, tenant } = await setUpTest()
  const payload = JSON.stringify({
    event: 'inbox_updated',
    channel: {
      line_channel_secret: `${MARKER} "quoted" \\`,
      line_channel_token: MARKER,
      line_channel_id: '1',
    },
    contact_inbox: { pubsub_token: MARKER, source_id: 'Uann' },
    content: 'he said "my token": 7',
  })
  await database.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, payload)
     values ($1, 'mbox', 'inbox_updated', gen_random_uuid(), now(), $2)`,
    [tenant.accountId, payload],
  )
  const migration = readMigrations().find(({ name }) => name.includes('chat-credentials'))
  await database.session((session) => session.query(migration?.sql ?? ''))
  const [row] = await database.query<{ payload: string }>('select payload from event')
  expect(JSON.parse(row?.payload ?? '')).toEqual({
    event: 'inbox_updated',
    channel: { line_channel_secret: null, line_channel_token: null, line_channel_id: '1' },
    contact_inbox: { pubsub_token: null, source_id: 'Uann' },
    content: 'he said "my token": 7',
  })
  await database.close()
})
