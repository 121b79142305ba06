/** How operators add, change and remove organizations and accounts in the console, over HTTP. */
import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { addSignedIn, type Operator, signedIn, startConsole } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { finishJobs } from '../support/jobs.ts'
import { activityOf, load } from '../support/load.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'
import { openSocket } from '../support/raw.ts'
import { readAnswer, setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()
const platform = await startPlatform()
const publicUrl = 'https://oa.example.com'
const { url } = await startConsole(database, {
  lineApiUrl: platform.url,
  config: { logLevel: 'silent', trustProxy: [], publicUrl },
})
const operator = await signedIn(url)

const addOrganization = async (name: string) => (await operator.post('/api/organizations', { name })).json.id
const organization = await addOrganization('Agency')
/** A channel of LINE with this secret, which LINE proves. */
const addChannel = (channelId: string, channelSecret: string) =>
  platform.addAccount({ ...randomAccount('Shop'), channelId, channelSecret })
/** As another program stores a secret, which nobody proves. */
const storeSecret = (id: string, secret: string) =>
  load(database, 'update official_account set channel_secret = $2 where id = $1', [id, secret])
const storedAccount = async (id: string) =>
  (await load<Record<string, unknown>>(database, 'select * from official_account where id = $1', [id]))[0]

const addAccount = async (fields: Record<string, unknown> = {}) =>
  (await operator.post('/api/accounts', { organization, name: 'Shop', ...fields })).json

const runJobs = () => finishJobs(database, { platform: verifierOn(platform, publicUrl) })

async function sendFile(path: string, content: string | Buffer, { headers }: Operator = operator) {
  const body = typeof content === 'string' ? content : new Uint8Array(content)
  const init = { method: 'POST', headers: { ...headers, 'content-type': 'text/csv' }, body }
  return readAnswer(await fetch(`${url}/api/fleet-file/${path}`, init))
}

it('organizations are added, renamed, and removed only after typing the name', async () => {
  const id = await addOrganization('Old')
  expect((await operator.post(`/api/organizations/${id}/rename`, { name: 'New ☕' })).status).toBe(200)
  const { organizations } = (await operator.get('/api/organizations')).json
  expect(organizations).toContainEqual({ id, name: 'New ☕', accounts: 0 })
  const remove = (name: string) => operator.post(`/api/organizations/${id}/remove`, { name })
  expect((await remove('Old')).status).toBe(400)
  expect((await remove('New ☕')).status).toBe(200)
  expect((await operator.get(`/api/organizations/${id}/contents`)).status).toBe(404)
})

it.each([[''], ['  '], ['a\0b'], ['x'.repeat(257)]])(
  'organizations are refused with the name %j',
  async (name) => {
    const { status, json } = await operator.post('/api/organizations', { name })
    expect([status, json.details[0].path]).toEqual([400, 'name'])
  },
)

it('an account is added with its addresses, which no later response repeats', async () => {
  const secret = 'c'.repeat(32)
  addChannel('1234', secret)
  const given = { name: 'Café "<b>"', channelId: '1234', channelSecret: secret, basicId: '' }
  const added = await addAccount(given)
  const stored = await storedAccount(added.id)
  expect(stored).toMatchObject({ name: 'Café "<b>"', channel_secret: secret, basic_id: null })
  expect(added).toEqual({
    id: added.id,
    webhookUrl: `${publicUrl}/api/line/${added.id}`,
    callbackUrl: `${publicUrl}/api/mbox/callback/${stored?.oa_hash}`,
    oaHash: stored?.oa_hash,
    trackingKey: stored?.tracking_key,
  })
  const { text } = await operator.get(`/api/accounts/${added.id}`)
  for (const hidden of [secret, stored?.oa_hash as string]) expect(text).not.toContain(hidden)
})

it('an account keeps the fields that an update leaves out, and its old address ends with a new one', async () => {
  const { id, callbackUrl } = await addAccount({ channelId: '55', chatSecret: 'chat' })
  const path = `/api/accounts/${id}`
  addChannel('55', 'd'.repeat(32))
  const changed = { name: 'Bar', channelSecret: 'd'.repeat(32), channelId: '55' }
  const { json } = await operator.post(`${path}/update`, changed)
  expect(json).toEqual({ changes: { name: ['Shop', 'Bar'], channelSecret: 'replaced' } })
  expect(await storedAccount(id)).toMatchObject({ channel_id: '55', chat_secret: 'chat' })
  const renewed = (await operator.post(`${path}/callback-address`)).json.callbackUrl
  expect(renewed).toMatch(/^https:\/\/oa\.example\.com\/api\/mbox\/callback\/[\w-]{32}$/)
  expect(renewed).not.toBe(callbackUrl)
  expect(renewed).toContain((await storedAccount(id))?.oa_hash)
  expect((await activityOf(database, 'account', id)).at(-1)).toMatchObject({
    changes: { oaHash: 'replaced' },
  })
})

it.each([
  ['channelId', { channelId: '08' }],
  ['channelAccessToken', { channelAccessToken: 'töken' }],
  ['organization', { organization: '999999999' }],
  ['colour', { colour: 'red' }],
  ['channelSecret', { channelSecret: 'x'.repeat(5_000) }],
])('an account is refused with an invalid %s', async (path, fields) => {
  const account = { organization, name: 'x', ...fields }
  const { status, json, text } = await operator.post('/api/accounts', account)
  expect([status, json.details[0].path]).toEqual([400, path])
  expect(text).not.toContain('xxxxx')
})

it('an account is refused with a tracking key that another account has, beside the field', async () => {
  await addAccount({ trackingKey: 'a-tracking-key' })
  const second = await addAccount()
  const fields = { trackingKey: 'a-tracking-key' }
  for (const [address, body] of [
    ['/api/accounts', { organization, name: 'y', ...fields }],
    [`/api/accounts/${second.id}/update`, fields],
  ] as const) {
    const { status, json } = await operator.post(address, body)
    const message = expect.stringContaining('already')
    expect([status, json.details]).toEqual([400, [{ path: 'trackingKey', message }]])
    expect(json.details[0].message).not.toContain('oa-audience')
  }
})

describe("LINE's webhook of an account", () => {
  const addPlatformAccount = async () => {
    const state = platform.addAccount(randomAccount('Bakery'))
    const { channelId, channelSecret, channelAccessToken } = state.account
    const { id } = await addAccount({ channelId, channelSecret, channelAccessToken })
    return { state, id, path: `/api/accounts/${id}/webhook` }
  }

  it('is pointed here only with the URL that the operator was shown', async () => {
    const { state, id, path } = await addPlatformAccount()
    state.settings.webhook = { endpoint: 'https://old.example/hook', active: true }
    const { json } = await operator.get(path)
    const wantedUrl = `${publicUrl}/api/line/${id}`
    expect(json).toEqual({ url: 'https://old.example/hook', isActive: true, isHere: false, wantedUrl })
    state.settings.webhook = { endpoint: 'https://newer.example/hook', active: true }
    const set = (replaces: string) => operator.post(`/api/accounts/${id}/set-webhook`, { replaces })
    expect((await set(json.url)).status).toBe(400)
    expect(state.settings.webhook.endpoint).toBe('https://newer.example/hook')
    expect((await set('https://newer.example/hook')).status).toBe(204)
    expect(state.settings.webhook.endpoint).toBe(wantedUrl)
    expect((await operator.get(path)).json.isHere).toBe(true)
    expect((await activityOf(database, 'account', id)).at(-1)).toMatchObject({
      action: 'account.webhook_set',
      changes: { url: ['https://newer.example/hook', wantedUrl] },
    })
  })

  it('cannot be set with refused credentials, and the message says why', async () => {
    const { id, path } = await addPlatformAccount()
    await operator.post(`/api/accounts/${id}/update`, { channelAccessToken: 'wrong' })
    const { status, json } = await operator.get(path)
    expect([status, json.message]).toEqual([400, expect.stringContaining('refuses the channel access token')])
  })

  it('cannot be set without a public address', async () => {
    const { path } = await addPlatformAccount()
    const local = await signedIn((await startConsole(database, { lineApiUrl: platform.url })).url)
    expect((await local.get(path)).json.message).toContain('PUBLIC_URL is not set')
  })

  it('and the account are verified, with the outcome in the log', async () => {
    const { state, id, path } = await addPlatformAccount()
    await operator.post(path, { replaces: null })
    state.settings.webhook = { endpoint: `${publicUrl}/api/line/${id}`, active: true }
    expect((await operator.post(`/api/accounts/${id}/verify`)).json.verified).toBe(true)
    expect((await activityOf(database, 'account', id)).at(-1)).toMatchObject({
      action: 'account.verified',
      changes: { verified: true },
    })
    // Changed credentials are not verified.
    addChannel(state.account.channelId, 'e'.repeat(32))
    await operator.post(`/api/accounts/${id}/update`, { channelSecret: 'e'.repeat(32) })
    expect((await operator.get(`/api/accounts/${id}`)).json.verification).toBeNull()
  })
})

const HEADER = 'organization,name,channel_id,channel_secret,channel_access_token'
const SECRET = 'never-to-be-echoed-secret'
const send = async (path: string, content: string | Buffer, sender: Operator = operator) => {
  const answer = await sendFile(path === 'apply' ? 'apply?webhook=no' : path, content, sender)
  expect(answer.text).not.toContain(SECRET)
  await runJobs()
  return answer
}
const count = async () => (await load(database, 'select from official_account')).length

it('a fleet file is shown before it is applied: added, updated, unchanged, and what changes', async () => {
  for (const channelId of ['9001', '9002', '9003']) addChannel(channelId, SECRET)
  await addAccount({ name: 'Same', channelId: '9001', channelSecret: SECRET })
  const { id } = await addAccount({ name: 'Before', channelId: '9002' })
  const file = [
    HEADER,
    `Agency,Same,9001,${SECRET},`,
    `Agency,After,9002,${SECRET},`,
    `${organization},New,9003,${SECRET},token`,
  ].join('\n')
  const before = await count()
  const { json } = await send('preview', file)
  expect(json).toMatchObject({ faults: [], faultCount: 0 })
  expect(json.accounts).toMatchObject([
    { line: 2, change: 'unchanged', changes: {} },
    { line: 3, id, change: 'updated', changes: { name: ['Before', 'After'], channelSecret: 'replaced' } },
    { line: 4, id: null, change: 'added', organizationId: organization, isUnusualSecret: true },
  ])
  expect(await count()).toBe(before)
  const applied = (await send('apply', file)).json.accounts
  expect(applied.map(({ change }: { change: string }) => change)).toEqual(['unchanged', 'updated', 'added'])
  expect(await storedAccount(applied[2].id)).toMatchObject({ name: 'New', channel_secret: SECRET })
  const actionsOf = async (id: string) =>
    (await activityOf(database, 'account', id))
      .map(({ action }) => action)
      .filter((action) => !/verified|followers/.test(action))
  expect(await actionsOf(applied[2].id)).toEqual(['account.added'])
  expect(await actionsOf(applied[1].id)).toEqual(['account.added', 'account.updated'])
  expect(await actionsOf(applied[0].id)).toEqual(['account.added'])
})

it('a fleet file with a fault changes nothing, and says which line and column', async () => {
  const file = [HEADER, `Agency,A,9100,${SECRET},`, `Nobody,B,9101,${SECRET},`, `Agency,,9102,,`].join('\n')
  const before = await count()
  const { json } = await send('preview', file)
  expect(json.faults).toEqual([
    { line: 3, column: 'organization', message: 'no organization has this id or name.' },
    { line: 4, column: 'name', message: 'a new account needs a name.' },
  ])
  const { status, json: refused } = await send('apply', file)
  expect([status, refused.details[0].path]).toEqual([400, 'line 3, column organization'])
  expect(await count()).toBe(before)
})

it('a fleet file adds the organizations that do not exist yet when it is asked to, for an owner of all', async () => {
  const file = [HEADER, 'New Bakery,A,9120,,', 'New Bakery,B,9121,,', '99999999,C,9122,,'].join('\n')
  const faults = [{ line: 4, column: 'organization', message: 'no organization has this id or name.' }]
  expect((await send('preview?organizations=yes', file)).json.faults).toEqual(faults)
  const right = file.replace('99999999', 'Agency')
  expect((await send('preview', right)).json.faultCount).toBe(1)
  expect((await send('preview?organizations=yes', right)).json.accounts).toMatchObject([
    { change: 'added', organization: 'New Bakery', organizationId: null },
    { change: 'added', organization: 'New Bakery', organizationId: null },
    { change: 'added', organizationId: organization },
  ])
  const names = async () =>
    (await operator.get('/api/organizations')).json.organizations.filter(
      ({ name }: { name: string }) => name === 'New Bakery',
    )
  expect(await names()).toEqual([])
  const { status, json } = await send('apply?webhook=no&organizations=yes', right)
  expect(status).toBe(202)
  const [added] = await names()
  expect(added).toMatchObject({ accounts: 2 })
  expect(json.accounts[1].organizationId).toBe(added.id)
  expect((await activityOf(database, 'organization', added.id)).map(({ action }) => action)).toEqual([
    'organization.added',
  ])
  for (const fields of [
    { role: 'manager' as const },
    { role: 'owner' as const, organizationIds: [BigInt(organization)] },
  ]) {
    const other = await addSignedIn({ url, database }, fields)
    const sent = right.replaceAll('New Bakery', 'Other Bakery')
    for (const path of ['preview?organizations=yes', 'apply?webhook=no&organizations=yes'])
      expect([fields.role, (await send(path, sent, other)).status]).toEqual([fields.role, 403])
  }
})

it('a fleet file names the line that a constraint refuses', async () => {
  const { oaHash } = tenant
  const { json } = await send('apply', `${HEADER},oa_hash\nAgency,A,9200,,,${oaHash}\n`)
  expect(json.details).toEqual([
    { path: 'line 2', message: expect.stringContaining('another account already has this oa_hash') },
  ])
})

it.each([
  ['is empty', ''],
  ['is not UTF-8', Buffer.from(`${HEADER}\nAgency,Caf\xe9,1,,`, 'latin1')],
  ['has 200,000 columns', `${Array(200_000).fill('a').join(',')}\n`],
  ['has a cell too many', `${HEADER}\nAgency,A,1,${SECRET},t,${SECRET}\n`],
])('a fleet file that %s is refused with a fault', async (_, content) => {
  const { status, json } = await send('preview', content)
  expect([status, json.accounts]).toEqual([200, []])
  expect(json.faultCount).toBeGreaterThan(0)
  expect(json.faults.length).toBeLessThanOrEqual(200)
})

it('a fleet file of 1 GB is refused before it is read', async () => {
  const headers = { ...operator.headers, host: new URL(url).host, 'content-length': '1000000000' }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  const socket = await openSocket(url, `POST /api/fleet-file/preview HTTP/1.1\r\n${lines.join('')}\r\n`)
  const [response] = await once(socket, 'data')
  expect(String(response)).toMatch(/^HTTP\/1\.1 413 /)
})

describe('long work', () => {
  const jobOf = async ({ status, json }: { status: number; json: { job: { id: string } } }) => {
    expect(status).toBe(202)
    await runJobs()
    return (await operator.get(`/api/jobs/${json.job.id}`)).json.job
  }
  const addPlatformAccount = async (fields = {}) => {
    const state = platform.addAccount(randomAccount('Bakery'))
    state.settings.testOrigin = service.url
    state.settings.webhook = { endpoint: 'https://tool.example/hook', active: true }
    const { channelId, channelSecret } = state.account
    const { id } = await addAccount({ channelId, channelSecret, ...fields })
    return { state, id, path: `/api/accounts/${id}` }
  }
  const membersOf = (id: string) =>
    load(database, 'select from audience_member where channel_oa_id = $1', [id])

  it('says why LINE refuses the list of followers', async () => {
    const { id, path } = await addPlatformAccount()
    await storeSecret(id, 'wrong')
    const job = await jobOf(await operator.post(`${path}/followers`))
    expect(job).toMatchObject({ status: 'failed', reason: 'refused_by_line' })
    expect(job.tally.problem).toContain('refuses the channel id and secret (status 400)')
  })

  it('brings accounts into service, and lists those with a problem', async () => {
    const [good, wrong] = [await addPlatformAccount(), await addPlatformAccount()]
    await storeSecret(wrong.id, 'wrong')
    addPeople(good.state, 2)
    const body = `organization,channel_id\nAgency,${good.state.account.channelId}\nAgency,${wrong.state.account.channelId}`
    const job = await jobOf(await sendFile('apply?webhook=yes', body))
    const problem = expect.stringContaining('refuses the channel id and secret')
    const problems = [{ accountId: wrong.id, problem }]
    const tally = { verified: 1, followersAdded: 2, problemCount: 1, problems }
    expect(job).toMatchObject({ status: 'done', done: '2', tally })
    expect(good.state.settings.webhook?.endpoint).toBe(`${publicUrl}/api/line/${good.id}`)
    expect(await membersOf(good.id)).toHaveLength(2)
    const parameters = await load(database, 'select parameters, tally from job', [])
    expect(JSON.stringify(parameters)).not.toContain(good.state.account.channelSecret)
  })

  it('removes an account only after typing its name, and refuses its deliveries at once', async () => {
    const { state, id, path } = await addPlatformAccount()
    addPeople(state, 3)
    await jobOf(await operator.post(`${path}/followers`))
    expect((await operator.get(`${path}/contents`)).json).toMatchObject({ name: 'Shop', members: 3 })
    expect((await operator.post(`${path}/remove`, { name: 'shop' })).status).toBe(400)
    const started = await operator.post(`${path}/remove`, { name: 'Shop' })
    expect(await storedAccount(id)).toMatchObject({ channel_secret: null })
    expect(await jobOf(started)).toMatchObject({ status: 'done' })
    expect(await storedAccount(id)).toBeUndefined()
    expect(await membersOf(id)).toEqual([])
    expect((await activityOf(database, 'account', id)).at(-1)).toMatchObject({
      action: 'account.removed',
      changes: { name: ['Shop', null] },
    })
  })
})

it('a fleet file of an operator of one organization reaches no other one, and says no more than of one that does not exist', async () => {
  const [own, other] = [await addTenant(database), await addTenant(database, { channelId: '123456' })]
  const before = await storedAccount(String(other.accountId))
  const fields = { role: 'manager' as const, organizationIds: [own.organizationId] }
  const manager = await addSignedIn({ url, database }, fields)
  for (const action of ['preview', 'apply?webhook=no']) {
    const refusals = [String(other.organizationId), '99999'].map(async (id) => {
      const file = `organization,channel_id,name\n${id},123456,taken over\n`
      const { status, json } = await sendFile(action, file, manager)
      return [status, { ...json, requestId: null }]
    })
    const [foreign, unknown] = await Promise.all(refusals)
    expect(JSON.stringify(foreign)).toContain('no organization has this id or name')
    expect(foreign).toEqual(unknown)
  }
  expect(await storedAccount(String(other.accountId))).toEqual(before)
})
