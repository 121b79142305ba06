/** What the console shows and changes, over HTTP. */
import { beforeAll, describe, expect, it } from 'vitest'
import { updateAccount } from '../../src/accounts/provisioning.ts'
import { Secret } from '../../src/config/secret.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { startSignedIn } from '../support/console.ts'
import { addTenant } from '../support/database.ts'
import { endOf, startJobRunner } from '../support/jobs.ts'
import { addFailedEvent, insertRow } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()
const jobs = startJobRunner(database)
const { operator } = await startSignedIn(database, { onJob: jobs.wake })

const accountPath = `/api/accounts/${tenant.accountId}`

it('accounts are listed and found by a part of their name or by their id', async () => {
  const other = await addTenant(database)
  await updateAccount(database, other.accountId, { name: 'Café ☕ "Ō"' })
  const { json } = await operator.get('/api/fleet')
  const ids = json.fleet.map(({ id }: { id: string }) => id)
  expect(ids).toEqual(expect.arrayContaining([String(tenant.accountId), String(other.accountId)]))
  for (const q of ['café', '☕', String(other.accountId)]) {
    const found = await operator.get(`/api/accounts?q=${encodeURIComponent(q)}`)
    expect(found.json.accounts[0]).toMatchObject({ id: String(other.accountId), name: 'Café ☕ "Ō"' })
  }
  expect((await operator.get('/api/accounts?q=%25')).json.accounts).toEqual([])
})

it('accounts have charts of their deliveries and followers, for those that a page shows', async () => {
  const id = String(tenant.accountId)
  const { json } = await operator.get(`/api/fleet/charts?ids=${id},999`)
  expect(json.charts.map((charts: { id: string }) => charts.id)).toEqual([id])
  expect(json.charts[0]).toMatchObject({ hours: { length: 24 }, days: { length: 30 } })
  for (const ids of ['', '1,', 'x', '99999999999999999999', Array(251).fill('1').join(',')])
    expect((await operator.get(`/api/fleet/charts?ids=${ids}`)).status, ids).toBe(400)
  expect((await operator.get('/api/fleet/charts?ids=9999999999999999999')).status).toBe(200)
})

it.each(['0', '9223372036854775808', 'x', '1e3', '-1'])(
  'accounts that do not exist are 404: %s',
  async (id) => {
    for (const path of ['accounts', 'endpoints', 'clients'])
      expect([path, (await operator.get(`/api/${path}/${id}`)).status]).toEqual([path, 404])
    expect((await operator.post(`/api/accounts/${id}/verify`)).status).toBe(404)
  },
)

describe('members', () => {
  const people = Array.from({ length: 60 }, () => randomUserId())
  const [ann = ''] = people
  const membersPath = `${accountPath}/members`
  const timelinePath = `${accountPath}/timeline?user=${ann}`

  beforeAll(async () => {
    await service.deliver(
      tenant,
      people.map((userId) => lineEvent('follow', userId)),
    )
    await database.query(
      `update audience_member set display_name = $2, tags = $3, external_id = 'c-1' where user_id = $1`,
      [ann, '<img src=x onerror=alert(1)> アン', ['vip', 'x"y']],
    )
  })

  it('are listed in pages', async () => {
    const { json: first, headers } = await operator.get(membersPath)
    expect(headers.get('content-encoding')).toBe('gzip')
    expect(first.data).toHaveLength(50)
    const second = (await operator.get(`${membersPath}?cursor=${first.nextCursor}`)).json
    expect(second.nextCursor).toBeNull()
    const userIds = [...first.data, ...second.data].map(({ userId }: { userId: string }) => userId)
    expect(userIds.toSorted()).toEqual(people.toSorted())
  })

  it('have a timeline whose pages name each event and edit once, the newest first', async () => {
    const startMs = Date.now() - 1_000_000
    // Many of them at the same millisecond.
    const events = Array.from({ length: 120 }, (_, i) =>
      textMessage(ann, `message ${i}`, { timestamp: startMs + Math.floor(i / 40) }),
    )
    await service.deliver(tenant, events)
    const entries: Array<{ at: string; eventId: string | null; kind: string }> = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const path: string = `${timelinePath}${cursor === '' ? '' : `&after=${cursor}`}`
      const { json } = await operator.get(path)
      entries.push(...json.timeline)
      cursor = json.next
    }
    expect(entries.filter(({ kind }) => kind === 'message')).toHaveLength(120)
    expect(entries.filter(({ kind }) => kind === 'edit')).toHaveLength(1)
    const ids = entries.map(({ eventId }) => eventId)
    expect(new Set(ids).size).toBe(ids.length)
    const times = entries.map(({ at }) => at)
    expect(times).toEqual(times.toSorted().reverse())
    expect((await operator.get(`${timelinePath}&after=x`)).status).toBe(400)
  })
})

it('events that could not be applied are counted by reason, and retried together', async () => {
  const other = await addTenant(database)
  const userId = randomUserId()
  for (let i = 0; i < 70; i += 1) await addFailedEvent(database, other, 'reason "a" <b>')
  const curable = await addFailedEvent(database, other, 'was broken once', lineEvent('follow', userId))
  await addFailedEvent(database, tenant, 'reason "a" <b>')
  const failure = encodeURIComponent('reason "a" <b>')
  const everywhere = await operator.get(`/api/events?failure=${failure}`)
  expect(everywhere.json.events[0].accountId).toBe(String(tenant.accountId))
  const reasons = await operator.get(`/api/events/reasons?account=${other.accountId}`)
  expect(reasons.json.reasons).toEqual([
    { failure: 'reason "a" <b>', count: 70 },
    { failure: 'was broken once', count: 1 },
  ])
  const shown = await operator.get(`/api/events/${curable}`)
  expect(shown.json.event).toMatchObject({ id: curable, payload: expect.stringContaining(userId) })

  const { status, json } = await operator.post('/api/events/retry-all', { account: String(other.accountId) })
  expect([status, json.job.total]).toEqual([202, '71'])
  const tally = { applied: 1, failed: 70 }
  expect(await endOf(operator, json.job)).toMatchObject({ status: 'done', done: '71', tally })
  expect(await service.member(other, userId)).toMatchObject({ relationship: 'following' })
})

it('endpoints are listed with backlog and deliveries in pages, and each delivery with its request', async () => {
  const own = await addTenant(database)
  const endpoint = { channel_oa_id: own.accountId, url: 'https://tool.example/hook', replies: true }
  const id = String(await insertRow(database, 'endpoint', endpoint))
  await service.deliver(own, [textMessage(randomUserId(), 'hello')])
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, attempts, failed_at, status, answer, created_at)
     select $1, $2, (select array_agg(key) from event where channel_oa_id = $1), 9, now(), 500, 'no',
            now() - interval '1 day'
       from generate_series(1, 60)`,
    [own.accountId, id],
  )
  const { json } = await operator.get(`/api/endpoints?account=${own.accountId}`)
  expect(json).toMatchObject({ endpoints: [{ id, pending: 1, failed: 60, status: 'active' }], next: null })
  const first = (await operator.get(`/api/endpoints/${id}/deliveries?status=failed`)).json
  expect(first.deliveries).toHaveLength(50)
  expect(first.deliveries[0]).toMatchObject({ attempts: 9, lastStatus: 500, lastAnswer: 'no', events: 1 })
  const second = (await operator.get(`/api/endpoints/${id}/deliveries?status=failed&after=${first.next}`))
    .json
  expect(second.deliveries).toHaveLength(10)
  const outOfRange = `/api/endpoints/${id}/deliveries?status=sent&after=1.${'9'.repeat(19)}`
  expect((await operator.get(outOfRange)).status).toBe(400)
  const pending = (await operator.get(`/api/endpoints/${id}/deliveries?status=pending`)).json
  expect(pending.deliveries).toHaveLength(1)

  const answer = await operator.get(`/api/endpoints/${id}/delivery?delivery=${first.deliveries[0].id}`)
  const { request } = answer.json
  expect(request.url).toBe('https://tool.example/hook')
  expect(JSON.parse(request.body)).toMatchObject({ events: [{ message: { text: 'hello' } }] })
  expect(request.headers['x-line-signature']).toBe('•••')
  expect(answer.text).not.toContain(new Secret(own.channelSecret).reveal())
  expect((await operator.get(`/api/endpoints/0/delivery?delivery=${first.deliveries[0].id}`)).status).toBe(
    404,
  )
})

it('clients are added with a secret that is in no later answer, and are revoked', async () => {
  const added = (await operator.post('/api/clients', { name: 'CRM' })).json
  const key = (await operator.post('/api/keys', { client: added.id, account: String(tenant.accountId) })).json
  const headers = {
    'x-client-id': added.clientId,
    'x-client-secret': added.clientSecret,
    'x-api-key': key.key,
  }
  const list = () => service.call('GET', '/api/audience', { headers })
  expect((await list()).status).toBe(200)
  const client = `/api/clients/${added.id}`
  const paths = ['/api/clients', client, `${client}/keys`, `${accountPath}/keys`]
  for (const path of paths) {
    const { text, status } = await operator.get(path)
    expect(status).toBe(200)
    expect(text).not.toContain(added.clientSecret)
    expect(text).not.toContain(key.key)
  }
  expect((await operator.get(`/api/clients/${added.id}/keys`)).json.keys).toMatchObject([
    { id: key.id, accountName: 'test', works: true },
  ])
  expect((await operator.post(`/api/keys/${key.id}/revoke`)).status).toBe(204)
  expect((await list()).json).toBeNull()
  expect((await operator.post(`/api/clients/${added.id}/revoke`)).status).toBe(204)
  expect((await list()).status).toBe(401)
})

it.each([
  ['/api/events?account=x', undefined],
  ['/api/events?after=1.9223372036854775808', undefined],
  ['/api/clients?after=x', undefined],
  ['/api/clients', { name: 'a\u0000b' }],
  ['/api/events/retry-all', []],
])('refuses invalid input: %s %j', async (path, body) => {
  const { status, json } = await (body === undefined ? operator.get(path) : operator.post(path, body))
  expect(status).toBe(400)
  expect(json.requestId).toBeDefined()
})
