/** What operators do with notification channels in the console. */
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { addSignedIn, signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)
const tenant = await addTenant(database)
const other = await addTenant(database)
const operator = await signedIn(url)

/** The path of a chat's webhook is a credential. */
const TARGET = 'https://hooks.chat.example/services/T0/CREDENTIAL'
const slack = { organization: null, format: 'slack', target: TARGET }

async function add(fields: Record<string, unknown> = {}): Promise<{ id: string; secret: string | null }> {
  const { status, json } = await operator.post('/api/notifications', { ...slack, ...fields })
  expect(status).toBe(200)
  return json
}

const read = async (id: string) => (await operator.get(`/api/notifications/${id}`)).json.channel
const activityOf = async (id: string) =>
  (await operator.get(`/api/activity/of?kind=notification_channel&id=${id}`)).json.activity

it('adds channels, and shows neither the URL of a chat nor a secret again', async () => {
  const chat = await add({ name: 'On call' })
  expect(chat.secret).toBeNull()
  expect(await read(chat.id)).toMatchObject({
    ...{ name: 'On call', format: 'slack', target: 'https://hooks.chat.example/…', status: 'active' },
    ...{ organizationId: null, organizationName: null, allowPrivateNetwork: false, lastResponse: null },
  })
  const target = 'https://tool.example/hook?token=CREDENTIAL'
  const webhook = await add({ format: 'webhook', target, organization: String(tenant.organizationId) })
  expect(webhook.secret).toMatch(/^whsec_/)
  expect((await read(webhook.id)).organizationId).toBe(String(tenant.organizationId))
  const paths = [chat, webhook].map(({ id }) => `/api/notifications/${id}`)
  for (const path of [...paths, '/api/notifications', '/api/activity']) {
    const { status, text } = await operator.get(path)
    expect([path, status]).toEqual([path, 200])
    expect(text).not.toMatch(/whsec_|CREDENTIAL/)
  }
})

const OWN_URL = 'https://oa.example.com/audience/api/line/1'
it.each<[string, Record<string, unknown>, string, RegExp]>([
  ["the service's own URL", { target: OWN_URL }, 'target', /loop/],
  ['a private address', { target: 'https://10.0.0.1/' }, 'target', /not public/],
  ['email without a mail server', { format: 'email', target: 'a@b.example' }, 'format', /SMTP_URL/],
  ['an organization that does not exist', { organization: '404404' }, 'organization', /not exist/],
])('refuses %s with the field', async (_, fields, path, message) => {
  const { status, json } = await operator.post('/api/notifications', { ...slack, ...fields })
  expect(status).toBe(400)
  expect(json.details).toContainEqual({ path, message: expect.stringMatching(message) })
})

it('says whether email can be sent, and adds such a channel if so', async () => {
  expect((await operator.get('/api/notifications')).json.canEmail).toBe(false)
  const smtpUrl = new Secret('smtp://mail.example')
  const withMail = await startConsole(database, { config: { smtpUrl } })
  const there = await signedIn(withMail.url)
  expect((await there.get('/api/notifications')).json.canEmail).toBe(true)
  const email = { ...slack, format: 'email', target: 'oncall@example.com' }
  const { json } = await there.post('/api/notifications', email)
  expect((await there.get(`/api/notifications/${json.id}`)).json.channel.target).toBe('oncall@example.com')
  const wrong = await there.post('/api/notifications', { ...email, target: 'a@b.example, c@d.example' })
  expect(wrong.json.details).toEqual([{ path: 'target', message: expect.stringContaining('mailbox') }])
})

it('records the change of a channel without its URL', async () => {
  const { id } = await add({ name: 'Night shift' })
  const call = async (action: string, body?: unknown) =>
    (await operator.post(`/api/notifications/${id}/${action}`, body)).status
  expect(await call('update', { target: `${TARGET}-2` })).toBe(204)
  const activity = await activityOf(id)
  expect(JSON.stringify(activity)).not.toContain('CREDENTIAL')
  const changesOf = (action: string) =>
    activity.find((row: { action: string }) => row.action === action).changes
  expect(changesOf('notifications.added').target).toEqual([null, 'https://hooks.chat.example/…'])
  expect(changesOf('notifications.updated').target).toBe('replaced')
})

it('lets an operator of some organizations choose one of them, without the private network', async () => {
  const organizationIds = [tenant.organizationId]
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds })
  const about = (organization: string | null, fields = {}) =>
    manager.post('/api/notifications', { ...slack, organization, ...fields })
  const own = String(tenant.organizationId)
  for (const organization of [null, String(other.organizationId)])
    expect((await about(organization)).json.details).toEqual([
      { path: 'organization', message: 'must be one of your organizations' },
    ])
  const refused = await about(own, { allowPrivateNetwork: true, target: 'http://10.0.0.1/' })
  expect(refused.json.details).toMatchObject([{ path: 'allowPrivateNetwork' }])
  const { json } = await about(own)
  const ofAll = await add()
  const seen = (await manager.get('/api/notifications')).json.channels
  expect(seen.map((channel: { organizationId: string }) => channel.organizationId)).toContain(own)
  expect(seen.map((channel: { id: string }) => channel.id)).not.toContain(ofAll.id)
  expect((await manager.get(`/api/notifications/${json.id}/messages`)).status).toBe(200)
  expect((await manager.get(`/api/notifications/${ofAll.id}/messages`)).status).toBe(404)
})
