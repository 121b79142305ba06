/** The log of who changed what: who writes it, who reads it, and that nobody changes it. */
import { expect, it } from 'vitest'
import { pauseGone } from '../../src/endpoints/manage.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, startConsole } from '../support/console.ts'
import { addFailedEvent, insertRow, load } from '../support/load.ts'
import { maintain } from '../support/maintenance.ts'
import { addClientNamed } from '../support/operations.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant, ...created } = await setUpService()
const { url } = await startConsole(database)
const { accountId, organizationId } = tenant
const here = { url, database }

interface Row {
  actor_kind: string
  actor: string
  action: string
  object_id: string | null
  changes: object
  request_id: string | null
}

const rowsOf = (action: string) =>
  load<Row & Record<string, unknown>>(database, 'select * from activity where action = $1 order by id', [
    action,
  ])

it('a change in the console is recorded with its operator, its request and its fields, but no personal text', async () => {
  const operator = await addSignedIn(here, { role: 'manager' })
  await service.deliver(tenant, [lineEvent('follow', 'U-person')])
  const [member] = await service.members(tenant)
  const of = { member: String(member?.id) }
  const edit = { ...of, version: String(member?.version), update: { externalId: 'crm-4711', tags: ['vip'] } }
  const account = `/api/accounts/${accountId}`
  expect((await operator.post(`${account}/update-member`, edit)).status).toBe(200)
  expect((await operator.post(`${account}/update-member`, edit)).status).toBe(412)
  expect((await operator.post(`${account}/erase-member`, of)).status).toBe(204)

  const expected = { actor_kind: 'operator', actor: operator.email, object_id: String(member?.id) }
  expect(await rowsOf('member.updated')).toEqual([
    expect.objectContaining({
      ...expected,
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      changes: { externalId: 'replaced', tags: 'replaced' },
    }),
  ])
  expect(await rowsOf('member.erased')).toEqual([expect.objectContaining(expected)])
  const [{ all } = { all: '' }] = await load<{ all: string }>(
    database,
    `select coalesce(string_agg(l::text, ''), '') as all from activity l`,
  )
  expect(all).not.toMatch(/U-person|crm-4711|vip/)
})

it('a change in the console is recorded with all that an addition sets, but without the values of attributes', async () => {
  const manager = await addSignedIn(here, { role: 'manager' })
  const account = String(accountId)
  const condition = { tagsAll: ['vip'], attributes: { city: 'Kyoto' } }
  const settings = {
    name: 'VIP',
    events: ['message'],
    replies: true,
    priority: 7,
    allowPrivateNetwork: true,
  }
  const url = 'https://tool.example/hook?token=secret'
  await manager.post('/api/endpoints', { ...settings, account, condition, url })
  await manager.post('/api/segments', { account, name: 'VIP', condition })
  const target = 'https://chat.example/services/secret'
  const channel = { name: 'Ops', format: 'slack', language: 'ja', allowPrivateNetwork: true }
  await manager.post('/api/notifications', { ...channel, target })
  const { clientId } = (await manager.post('/api/clients', { name: 'CRM' })).json
  const added = (fields: object) =>
    Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, [null, value]]))
  const recorded = { tagsAll: ['vip'], attributes: ['city'] }
  const changesOf = async (action: string) => (await rowsOf(action)).at(-1)?.changes
  expect(await changesOf('endpoint.added')).toEqual(
    added({
      ...settings,
      format: 'line',
      condition: recorded,
      url: 'https://tool.example/hook?…',
    }),
  )
  expect(await changesOf('segment.added')).toEqual(added({ name: 'VIP', condition: recorded }))
  expect(await changesOf('notifications.added')).toEqual(
    added({ ...channel, target: 'https://chat.example/…' }),
  )
  expect(await changesOf('client.added')).toEqual(added({ name: 'CRM', clientId }))
})

it('a change in the console is recorded with the reason why events are set aside', async () => {
  const manager = await addSignedIn(here, { role: 'manager' })
  const id = await addFailedEvent(database, tenant, 'malformed')
  const setAside = (path: string, input: object) => manager.post(`/api/events/${path}`, input)
  for (const reason of ['a known bug', 'a known bug', null]) await setAside(`${id}/set-aside`, { reason })
  await setAside('set-aside-all', { account: String(accountId), reason: 'a known bug' })
  expect((await rowsOf('events.set_aside')).map(({ changes }) => changes)).toEqual([
    { reason: [null, 'a known bug'] },
    { reason: ['a known bug', null] },
    { failure: null, reason: 'a known bug', events: 1 },
  ])
})

it('a change in the console is not recorded if it saves a member as it is', async () => {
  const manager = await addSignedIn(here, { role: 'manager' })
  const { id, version } = await service.addFollower(tenant)
  const count = async () => (await rowsOf('member.updated')).length
  const before = await count()
  for (const update of [{}, { tags: [] }]) {
    const { status } = await manager.post(`/api/accounts/${accountId}/update-member`, {
      member: String(id),
      version: String(version),
      update,
    })
    expect([status, await count()]).toEqual([200, before])
  }
})

it('a change in the console is found by the id of its request', async () => {
  const owner = await addSignedIn(here, { role: 'owner' })
  await owner.post('/api/clients', { name: 'CRM' })
  const [row] = (await rowsOf('client.added')).slice(-1)
  const { json } = await owner.get(`/api/search?q=${row?.request_id}`)
  expect(json.activity).toEqual([
    expect.objectContaining({ action: 'client.added', objectId: row?.object_id }),
  ])
})

it('what LINE and receivers cause is recorded as a change by the service', async () => {
  await service.deliver(tenant, [lineEvent('botSuspended', null)])
  await service.deliver(tenant, [lineEvent('botResumed', null)])
  const id = await insertRow(database, 'endpoint', { channel_oa_id: accountId, url: 'https://gone.example/' })
  for (let i = 0; i < 2; i += 1) await database.query(pauseGone, [id])
  const service_ = { actor_kind: 'service', actor: 'service' }
  const object = { ...service_, object_id: String(accountId) }
  expect(await rowsOf('account.suspended')).toEqual([expect.objectContaining(object)])
  expect(await rowsOf('account.resumed')).toEqual([expect.objectContaining(object)])
  expect(await rowsOf('endpoint.gone')).toEqual([
    expect.objectContaining({ ...service_, object_id: String(id) }),
  ])
})

it.each([
  `update activity set actor = 'somebody else'`,
  'delete from activity',
  'truncate activity',
  `delete from activity where occurred_at > now() - interval '1 minute'`,
])('the rows cannot be changed by: %s', async (text) => {
  await expect(database.query(text)).rejects.toThrow('cannot be changed')
})

it('the rows are deleted after AUDIT_RETENTION_DAYS', async () => {
  await load(
    database,
    `insert into activity (occurred_at, actor_kind, actor, action, object_kind)
     select now() - days * interval '1 day', 'command', 'days ' || days, 'key.added', 'key' from unnest(array[39, 41]) days`,
  )
  await maintain(database, { auditRetentionDays: 40 })
  const old = (await rowsOf('key.added')).filter(({ actor }) => actor.startsWith('days'))
  expect(old.map(({ actor }) => actor)).toEqual(['days 39'])
})

it('the log is read as a whole by owners alone, and by everybody on the page of an object', async () => {
  const viewer = await addSignedIn(here, { role: 'viewer', organizationIds: [organizationId] })
  expect((await viewer.get('/api/activity')).status).toBe(403)
  const { json } = await viewer.get(`/api/activity/of?kind=account&id=${accountId}`)
  const actions = json.activity.map(({ action }: { action: string }) => action)
  expect(actions).toEqual(expect.arrayContaining(['account.resumed', 'account.suspended']))
})

it('the log names who changed what, also after a removal', async () => {
  const manager = await addSignedIn(here, { role: 'manager' })
  await load(database, `update operator set name = 'Aiko' where id = $1`, [manager.id])
  const endpoint = { account: String(accountId), url: 'https://crm.example/', name: 'CRM', format: 'line' }
  const { id } = (await manager.post('/api/endpoints', endpoint)).json
  await manager.post(`/api/endpoints/${id}/pause`)
  const rows = async () => (await manager.get(`/api/activity/of?kind=endpoint&id=${id}`)).json.activity
  const row = { actorName: 'Aiko', actor: manager.email, accountName: expect.any(String) }
  expect(await rows()).toEqual([
    expect.objectContaining({ ...row, action: 'endpoint.paused', objectName: 'CRM' }),
    expect.objectContaining({ ...row, action: 'endpoint.added', objectName: 'CRM' }),
  ])
  expect((await manager.post(`/api/endpoints/${id}/remove`)).status).toBe(204)
  expect((await rows())[0]).toMatchObject({
    ...{ action: 'endpoint.removed', objectName: null, changes: { name: ['CRM', null] } },
  })
})

it('the log shows the present name of a member, but its export does not', async () => {
  const owner = await addSignedIn(here, { role: 'owner' })
  await service.deliver(tenant, [lineEvent('follow', 'U-named')])
  const [member] = await load<{ id: bigint; version: bigint }>(
    database,
    `update audience_member set display_name = 'Dao' where user_id = 'U-named' returning id, version`,
  )
  const edit = { member: String(member?.id), version: String(member?.version), update: { tags: ['vip'] } }
  expect((await owner.post(`/api/accounts/${accountId}/update-member`, edit)).status).toBe(200)
  const { activity } = (await owner.get('/api/activity?action=member.updated')).json
  expect(activity[0]).toMatchObject({ objectKind: 'member', objectName: 'Dao' })
  expect((await owner.get('/api/activity/export?action=member.updated')).text).not.toContain('Dao')
})

it('the log is filtered by account, operator, action and time, page by page', async () => {
  const owner = await addSignedIn(here, { role: 'owner' })
  for (let i = 0; i < 60; i += 1) await addClientNamed(database, `Client ${i}`)
  const first = (await owner.get('/api/activity?action=client.')).json
  expect(first.activity).toHaveLength(50)
  const rest = (await owner.get(`/api/activity?action=client.&after=${first.next}`)).json
  const ids = [...first.activity, ...rest.activity].map(({ id }: { id: string }) => Number(id))
  expect(ids).toEqual([...new Set(ids)].sort((a, b) => b - a))
  const count = async (query: string) => (await owner.get(`/api/activity?${query}`)).json.activity.length
  expect(await count(`account=${accountId}`)).toBeGreaterThan(0)
  expect(await count(`account=${accountId}&operator=${owner.id}`)).toBe(0)
  expect(await count(`operator=${owner.id}`)).toBe(1)
  expect(await count('action=%25')).toBe(0)
  for (const kind of ['operator', 'token', 'command', 'service']) {
    const { activity } = (await owner.get(`/api/activity?actor=${kind}`)).json
    const kinds = activity.map(({ actorKind }: { actorKind: string }) => actorKind)
    expect(new Set(kinds)).toEqual(new Set(kinds.length > 0 ? [kind] : []))
    expect(kinds.length > 0, kind).toBe(kind !== 'token')
  }
  expect(await count('from=2099-01-01T00:00Z')).toBe(0)
  expect(await count('to=2000-01-01T00:00:00Z')).toBe(0)
  expect((await owner.get('/api/activity?from=yesterday')).status).toBe(400)
})

it('the log is exported completely, in the console and on the command line', async () => {
  const [{ count } = { count: 0 }] = await load<{ count: number }>(
    database,
    'select count(*)::int as count from activity where operator_id is null',
  )
  const owner = await addSignedIn(here, { role: 'owner' })
  const { text } = await owner.get('/api/activity/export')
  const rows = Array.from(text.trim().split('\n'), (line) => JSON.parse(line))
  expect(rows.filter(({ operatorId }) => operatorId === null)).toHaveLength(count + 1)
  const { stdout } = await runCommand(['activity', 'export'], created.env)
  expect(stdout.trim().split('\n')).toHaveLength(rows.length)
  const listed = await runCommand(['activity', 'list', '--action', 'account.', '--limit', '1'], created.env)
  expect(listed.stdout).toMatch(/account\.resumed/)
  const since = await runCommand(['activity', 'list', '--since', 'yesterday'], created.env)
  expect([since.status, since.stderr]).toEqual([1, expect.stringContaining('--since must be a time')])
})
