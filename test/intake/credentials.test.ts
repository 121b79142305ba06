/** No credential that a body carries is stored, from any source. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isCredentialName, storedPayload } from '../../src/intake/stored-payload.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import * as chatwoot from '../support/chatwoot.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { readEverything } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { setUpService, startApp } from '../support/service.ts'

const MARKER = 'marker-of-a-credential'

/** Names under which public sources keep credentials: Chatwoot's channels and inboxes, OAuth, and common spellings. */
const NAMES = [
  ...['line_channel_secret', 'line_channel_token', 'pubsub_token', 'hmac_token', 'bot_token', 'auth_token'],
  ...['page_access_token', 'user_access_token', 'webhook_verify_token', 'api_key', 'secret', 'smtp_password'],
  ...['imapPassword', 'accessToken', 'idToken', 'id-token', 'client_secret', 'privateKey', 'Authorization'],
  ...'secret_key auth_key signing_key pass smtp_pass smtppass userPass pwd jwt cookie'.split(' '),
  ...'bearer verification_pin PIN tokens api_keys secrets passwords cookies Set-Cookie'.split(' '),
  ...'password_confirmation password_digest token2 X-Api-Key api.key AWS_SECRET_ACCESS_KEY otp'.split(' '),
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
  webhook_url: `https://user:${MARKER}@chat.example/hook?lang=th&token=${MARKER}#top`,
  provider_config: { undocumented: MARKER },
  changed_attributes: [{ channel: { previous_value: MARKER, current_value: MARKER } }],
  nested: { channel: MARKER },
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
  {
    ...{ event: 'webwidget_triggered', id: 8, contact: chatwoot.contact('Uann'), current_conversation: {} },
    event_info: { referer: `https://shop.example/?a=1&reset_token=${MARKER}&b=2` },
  },
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
  const platform = await startPlatform()
  const { loginChannelId } = platform.account
  const tenant = await addTenant(database, { loginChannelIds: [loginChannelId] })
  const lines: string[] = []
  const service = await startApp(database, {
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
  expect(answers.filter((text) => !/"accepted":[1-9]/.test(text))).toEqual([])
  const everything = await readEverything(database)
  expect(everything).toContain('https://chat.example/hook?lang=th&token=[token]#top')
  expect(everything).toContain('https://shop.example/?a=1&reset_token=[token]&b=2')
  const places = { everything, log: lines.join(), answers: answers.join(), refused }
  for (const [place, text] of Object.entries(places)) {
    for (const credential of [MARKER, idToken]) expect(text.includes(credential), place).toBe(false)
  }
})

it("stores LINE's events as LINE sends them, with every field", async () => {
  const { database, service, tenant } = await setUpService()
  const address = `https://a:b@shop.example/?token=${MARKER}`
  const events = ['follow', 'postback', 'accountLink', 'unknown'].map((kind) =>
    lineEvent(kind, 'Uann', {
      shopToken: MARKER,
      replyToken: 'reply',
      secrets: [{ api_key: MARKER, address }],
    }),
  )
  const [alone, ...together] = events
  expect((await service.deliver(tenant, [alone])).status).toBe(200)
  expect((await service.deliver(tenant, together)).status).toBe(200)
  const rows = await database.query<{ payload: string }>('select payload from event order by id')
  expect(rows.map(({ payload }) => payload)).toEqual(events.map((event) => JSON.stringify(event)))
})

describe('of any JSON', () => {
  const name = fc.oneof(
    { weight: 3, arbitrary: fc.string({ maxLength: 12 }) },
    fc.constantFrom(...NAMES),
    fc.constantFrom('name', 'channel', 'key', 'compass', '__proto__', 'replyToken', 'messages'),
  )
  const { json } = fc.letrec((tie) => ({
    json: fc.oneof(
      { depthSize: 'small' },
      fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.constant(null)),
      fc.array(tie('json'), { maxLength: 4 }),
      fc
        .array(fc.tuple(name, tie('json')), { maxLength: 4 })
        .map((fields) =>
          JSON.parse(`{${fields.map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(v)}`)}}`),
        ),
    ),
  }))

  /** An independent rule: the same value, where no object has a field with the name of a credential. */
  const without = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(without)
    if (typeof value !== 'object' || value === null) return value
    const kept = Object.entries(value).filter(([field]) => !isCredentialName(field))
    return JSON.parse(`{${kept.map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(without(v))}`)}}`)
  }

  it('everything but the fields with the names of credentials is kept', () => {
    fc.assert(
      fc.property(json, (value) => {
        const before = JSON.stringify(value)
        expect(JSON.parse(storedPayload(value))).toEqual(without(value))
        expect(JSON.stringify(value)).toBe(before)
      }),
    )
  })

  it('no value is stored under any spelling of a credential, and none of its texts', () => {
    const spelled = fc
      .tuple(
        fc.constantFrom(...NAMES),
        fc.constantFrom('', 'my_', 'X-', 'old'),
        fc.constantFrom('', '1', '_'),
      )
      .map(([each, before, after]) => `${before}${each.charAt(0).toUpperCase()}${each.slice(1)}${after}`)
    fc.assert(
      fc.property(spelled, json, json, (field, around, inside) => {
        const credential = { [field]: [MARKER, { deep: MARKER, inside }] }
        const text = storedPayload({ event: 'something_new', around, list: [[credential]], ...credential })
        expect(text).not.toContain(MARKER)
        expect(JSON.parse(text)).toEqual({ event: 'something_new', around: without(around), list: [[{}]] })
      }),
    )
  })
})

it.each([
  ['https://user:pass@host/path', 'https://host/path'],
  ['https://user:p@ss@host', 'https://host'],
  ['wss://:key@host', 'wss://host'],
  ['https://host/?u=https%3A%2F%2Fa%3Ab%40other%2Fpath', 'https://host/?u=https%3A%2F%2Fother%2Fpath'],
  ['https://host/?a=1&token=x&b=2', 'https://host/?a=1&token=[token]&b=2'],
  ['https://host/?user[token]=x#id_token=y', 'https://host/?user[token]=[token]#id_token=[token]'],
  [
    'https://host/?X-Amz-Credential=x&X-Amz-Security-Token=y',
    'https://host/?X-Amz-Credential=[token]&X-Amz-Security-Token=[token]',
  ],
  ['https://host/?token=a\\b', 'https://host/?token=[token]'],
  ['<a href="https://host/?token=x">@ann</a>', '<a href="https://host/?token=[token]">@ann</a>'],
])('an address %s is stored without its credentials', (address, kept) => {
  expect(JSON.parse(storedPayload({ address }))).toEqual({ address: kept })
})

it.each([
  'mail ann@example.com',
  'https://host/@ann?page=2#pin',
  'see https://host and ask @ann',
  'a token=x of yours',
  'HP:https://shop.example、メール:info@shop.example',
  '公式https://shop.exampleお問合せinfo@shop.exampleまで',
])('an address %s is kept', (text) => expect(JSON.parse(storedPayload({ text }))).toEqual({ text }))

it('an address of a megabyte costs no more than reading it', () => {
  for (const text of ['://', '%3A%2F%2F', '?', '?a', '&token=', 'a@', '://a', '\\']) {
    const startedAtMs = performance.now()
    storedPayload({ text: text.repeat(1_000_000 / text.length) })
    expect(performance.now() - startedAtMs, text).toBeLessThan(2_000)
  }
})

it.each('replyToken quoteToken markAsReadToken compass bypass spin secretary key name'.split(' '))(
  'the name %s is not that of a credential',
  (name) => expect(isCredentialName(name)).toBe(false),
)

it.each([
  'https://x.example/?next=/login?token=hunter2',
  'https://x.example/?a=1;token=hunter2',
  'https://x.example/?liff.state=%3Ftoken%3Dhunter2',
  'https://x.example/?url=https%3A%2F%2Fy.example%2F%3Faccess_token%3Dhunter2',
])('removes the credential of a nested address: %s', (text) => {
  expect(storedPayload({ text })).not.toContain('hunter2')
})
