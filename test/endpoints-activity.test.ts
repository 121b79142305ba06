/** The log of who changed which endpoint, and who may let one reach the private network. */
import { expect, it } from 'vitest'
import { ACTIONS } from '../src/operator/activity.ts'
import { runCommand } from './support/command.ts'
import { addSignedIn, signedIn, startConsole } from './support/console.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { startReceiver } from './support/endpoints.ts'
import { load } from './support/load.ts'

const { database, env } = await createTestDatabase()
const { url } = await startConsole(database)
const operator = await signedIn(url)
const { accountId, organizationId } = await addTenant(database)
const receiver = await startReceiver()
const settings = { account: String(accountId), url: receiver.url, allowPrivateNetwork: true }

const isOfEndpoint = (action: string) => action.startsWith('endpoint.')
/** `endpoint.gone` is recorded by the sender: see activity.test.ts. */
const ENDPOINT_ACTIONS = ACTIONS.filter((action) => isOfEndpoint(action) && action !== 'endpoint.gone')

const rowsOf = (id: string) =>
  load<{ action: string; actor_kind: string; changes: Record<string, unknown> }>(
    database,
    `select action, actor_kind, changes from activity
      where object_kind = 'endpoint' and object_id = $1 and channel_oa_id = $2 and organization_id = $3 order by id`,
    [id, accountId, organizationId],
  )

const actionsOf = async (id: string) => (await rowsOf(id)).map(({ action }) => action)

/** What is done with an endpoint of the format `line` and with one of the format `members`, and the rows of both in this order. */
const HISTORY = {
  line: ['added', 'updated', 'paused', 'resumed', 'tested', 'retried', 'replayed', 'removed'],
  members: ['added', 'rotated', 'rotation_finished', 'rotated', 'rotation_discarded', 'resent', 'removed'],
}
const namesOf = (format: keyof typeof HISTORY) => HISTORY[format].map((name) => `endpoint.${name}`)

it('every action with an endpoint is in the histories of this test', () => {
  expect(new Set([...namesOf('line'), ...namesOf('members')])).toEqual(new Set(ENDPOINT_ACTIONS))
})

it('each change in the console writes one row', async () => {
  const post = async (path: string, body?: unknown) => {
    const { status, text, json } = await operator.post(`/api/endpoints${path}`, body)
    expect([path, status < 300 ? 'done' : text]).toEqual([path, 'done'])
    return json
  }
  const add = async (format: string) => (await post('', { ...settings, format })).id as string
  const [line, members] = [await add('line'), await add('members')]
  await post(`/${line}/update`, { name: 'Tool' })
  for (const change of ['pause', 'resume', 'test', 'retry']) await post(`/${line}/${change}`)
  await post(`/${line}/replay`, { from: '2020-01-01', to: '2020-01-02' })
  await post(`/${line}/remove`)
  for (const change of ['rotate', 'finish-rotation', 'rotate', 'discard-rotation'])
    await post(`/${members}/${change}`)
  await post(`/${members}/resend`, { filters: {} })
  await post(`/${members}/remove`)
  expect(await actionsOf(line)).toEqual(namesOf('line'))
  expect(await actionsOf(members)).toEqual(namesOf('members'))
  const rows = [...(await rowsOf(line)), ...(await rowsOf(members))]
  expect(new Set(rows.map(({ actor_kind }) => actor_kind))).toEqual(new Set(['token']))
  const changesOf = (action: string) => rows.find((row) => row.action === action)?.changes
  expect(changesOf('endpoint.updated')).toEqual({ name: ['', 'Tool'] })
  expect(changesOf('endpoint.rotated')).toEqual({ secret: 'replaced' })
  expect(JSON.stringify(rows)).not.toContain('whsec_')
})

it('each command writes one row', async () => {
  const run = async (...args: string[]) => {
    const { status, stdout, stderr } = await runCommand(['endpoints', ...args, '--json'], env)
    expect([args[0], status === 0 ? 'done' : stderr]).toEqual([args[0], 'done'])
    return stdout
  }
  const add = async (format: string) => {
    const given = ['--account', settings.account, '--url', settings.url, '--allow-private-network']
    return JSON.parse(await run('add', ...given, '--format', format)).id as string
  }
  const [line, members] = [await add('line'), await add('members')]
  await run('update', line, '--name', 'Tool')
  for (const change of ['pause', 'resume', 'test', 'retry']) await run(change, line)
  const started = ['--yes', '--no-wait']
  await run('replay', line, '--from', '2020-01-01', '--to', '2020-01-02', ...started)
  await run('remove', line)
  for (const options of [[], ['--finish'], [], ['--discard']]) await run('rotate', members, ...options)
  await run('resend', members, ...started)
  await run('remove', members)
  expect(await actionsOf(line)).toEqual(namesOf('line'))
  expect(await actionsOf(members)).toEqual(namesOf('members'))
})

it('only operators of all organizations let an endpoint reach the private network', async () => {
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds: [organizationId] })
  const refusalOf = async (path: string, body: unknown) => {
    const { status, json } = await manager.post(`/api/endpoints${path}`, body)
    return [status, json.details?.[0]?.path]
  }
  const outside = {
    ...settings,
    format: 'line',
    url: 'https://tool.example/hook',
    allowPrivateNetwork: false,
  }
  const inside = (await operator.post('/api/endpoints', { ...settings, format: 'line' })).json.id
  const { id } = (await manager.post('/api/endpoints', outside)).json
  const refused = [400, 'allowPrivateNetwork']
  expect(await refusalOf('', { ...outside, allowPrivateNetwork: true })).toEqual(refused)
  expect(await refusalOf(`/${id}/update`, { allowPrivateNetwork: true })).toEqual(refused)
  expect(await refusalOf(`/${inside}/update`, { url: 'http://10.0.0.1/' })).toEqual([400, 'url'])
  expect((await manager.post(`/api/endpoints/${inside}/update`, { name: 'Ours' })).status).toBe(204)
  const stored = await load(
    database,
    'select url, allow_private_network from endpoint where id = any ($1) order by id',
    [[inside, id]],
  )
  expect(stored).toEqual([
    { url: expect.stringContaining(new URL(receiver.url).host), allow_private_network: true },
    { url: outside.url, allow_private_network: false },
  ])
})
