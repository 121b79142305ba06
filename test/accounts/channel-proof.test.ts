/** A channel id and secret are proven by LINE before they are stored: by the console, with a fleet file and with commands. */
import { expect, it } from 'vitest'
import { MISBEHAVIOURS } from '../../tools/simulator/misbehaviour.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, type Operator, startSignedIn } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { writeTemporaryFile } from '../support/process.ts'

const { database, ...created } = await createTestDatabase()
const platform = await startPlatform()
const env = { ...created.env, LINE_API_URL: platform.url }
const { url, operator } = await startSignedIn(database, { lineApiUrl: platform.url })
const TOKEN_CALL = 'POST /oauth2/v3/token'
const REFUSAL = 'LINE refuses this channel id and secret.'
const WARNING = 'LINE does not respond, so nothing proves'

const newChannel = () => {
  const { channelId, channelSecret } = platform.addAccount(randomAccount('Shop')).account
  return { channelId, channelSecret }
}
const organization = async (name: string): Promise<string> =>
  (await operator.post('/api/organizations', { name })).json.id
const secretOf = async (id: string) => {
  const [row] = await load(database, 'select channel_secret from official_account where id = $1', [id])
  return row?.channel_secret
}
const count = async () => (await load(database, 'select from official_account')).length

async function withoutLine<T>(work: () => Promise<T>): Promise<T> {
  platform.misbehave(MISBEHAVIOURS.error ?? null)
  try {
    return await work()
  } finally {
    platform.misbehave(null)
  }
}

async function fleetFile(lines: string[], sender: Operator = operator) {
  const body = ['organization,name,channel_id,channel_secret', ...lines].join('\n')
  const response = await fetch(`${url}/api/fleet-file/apply?webhook=no`, {
    method: 'POST',
    headers: { ...sender.headers, 'content-type': 'text/csv' },
    body,
  })
  return { status: response.status, json: (await response.json()) as Record<string, never> }
}

async function applyCommand(lines: string[]) {
  const file = writeTemporaryFile(
    'fleet.csv',
    ['organization,name,channel_id,channel_secret', ...lines].join('\n'),
  )
  return runCommand(['accounts', 'apply', file, '--no-webhook', '--json'], env)
}

it('a channel secret that LINE refuses is refused by the form, beside the field, and the stored one stays', async () => {
  const { channelId, channelSecret } = newChannel()
  const owner = await organization('Form')
  const add = (secret: string) =>
    operator.post('/api/accounts', { organization: owner, name: 'x', channelId, channelSecret: secret })
  const refused = await add('zzz')
  expect([refused.status, refused.json.details]).toEqual([
    400,
    [{ path: 'channelSecret', message: expect.stringContaining(REFUSAL) }],
  ])
  const { status, json } = await add(channelSecret)
  expect([status, json.isUnproven]).toEqual([200, undefined])
  const update = await operator.post(`/api/accounts/${json.id}/update`, { channelSecret: 'zzz' })
  expect([update.status, await secretOf(json.id)]).toEqual([400, channelSecret])
})

it('a channel secret that LINE refuses is refused by commands with one line, and nothing is added', async () => {
  const { channelId, channelSecret } = newChannel()
  const { organizationId, accountId } = await addTenant(database, { channelId, channelSecret })
  const other = newChannel()
  const options = ['--channel-id', other.channelId, '--channel-secret', 'f'.repeat(32)]
  const before = await count()
  for (const args of [
    ['accounts', 'add', '--organization', String(organizationId), '--name', 'x', ...options],
    ['setup', '--organization-name', 'New', '--name', 'x', ...options],
    ['accounts', 'update', String(accountId), '--channel-secret', 'f'.repeat(32)],
    ['accounts', 'update', String(accountId), '--channel-id', '4711'],
  ]) {
    const { status, stderr } = await runCommand(args, env)
    expect([status, stderr]).toEqual([1, expect.stringMatching(/^oa-audience: LINE refuses [^\n]+\n$/)])
  }
  expect([await count(), await secretOf(String(accountId))]).toEqual([before, channelSecret])
  const update = ['accounts', 'update', String(accountId), '--channel-secret', 'f'.repeat(32)]
  expect(await runCommand([...update, '--unproven'], env)).toMatchObject({ status: 0, stderr: '' })
  expect(await secretOf(String(accountId))).toBe('f'.repeat(32))
})

it('a channel secret that LINE refuses is a fault of its line in a fleet file, and the file changes nothing', async () => {
  const [good, wrong] = [newChannel(), newChannel()]
  const owner = await organization('File')
  const lines = [`${owner},A,${good.channelId},${good.channelSecret}`, `${owner},B,${wrong.channelId},zzz`]
  const before = await count()
  const { status, json } = await fleetFile(lines)
  expect([status, json.details]).toEqual([
    400,
    [{ path: 'line 3, column channel_secret', message: expect.stringContaining(REFUSAL) }],
  ])
  const command = await applyCommand(lines)
  expect([command.status, command.stderr]).toEqual([
    1,
    expect.stringContaining('line 3, column channel_secret: LINE refuses'),
  ])
  expect(await count()).toBe(before)
})

it('a channel secret that LINE cannot prove now is stored with a warning', async () => {
  const { organizationId } = await addTenant(database)
  const owner = String(organizationId)
  const [first, second, third] = [newChannel(), newChannel(), newChannel()]
  await withoutLine(async () => {
    const { status, json } = await operator.post('/api/accounts', {
      organization: owner,
      name: 'x',
      ...first,
    })
    expect([status, json.isUnproven]).toEqual([200, true])
    const { channelId, channelSecret } = second
    const add = ['accounts', 'add', '--organization', owner, '--name', 'x', '--channel-id', channelId]
    const command = await runCommand([...add, '--channel-secret', channelSecret], env)
    expect([command.status, command.stderr]).toEqual([0, expect.stringContaining(WARNING)])
    const file = await fleetFile([`${owner},A,${third.channelId},${third.channelSecret}`])
    expect([file.status, file.json.unproven]).toEqual([202, 1])
  })
})

it('a channel secret that LINE cannot prove now of a large file is asked about until LINE does not respond', async () => {
  const owner = await organization('Large')
  const lines = Array.from({ length: 200 }, (_, i) => `${owner},A${i},${800_000 + i},${'a'.repeat(32)}`)
  platform.calls.length = 0
  const { json } = await withoutLine(() => fleetFile(lines))
  expect(json.unproven).toBe(200)
  expect(platform.calls.filter((call) => call === TOKEN_CALL).length).toBeLessThanOrEqual(60)
})

it('LINE is not asked if neither channel id nor secret changes, or one is missing', async () => {
  const { channelId, channelSecret } = newChannel()
  const { accountId } = await addTenant(database, { channelId, channelSecret })
  const bare = await addTenant(database)
  platform.calls.length = 0
  const path = `/api/accounts/${accountId}/update`
  expect((await operator.post(path, { name: 'New', channelId, channelSecret })).status).toBe(200)
  expect((await operator.post(path, { channelAccessToken: 'token' })).status).toBe(200)
  expect((await operator.post(path, { channelSecret: null })).status).toBe(200)
  expect(
    (await operator.post(`/api/accounts/${bare.accountId}/update`, { channelSecret: 'zzz' })).status,
  ).toBe(200)
  expect(platform.calls).toEqual([])
})

it('a channel that another account has is refused with that account by the form, a fleet file and commands, also in another organization', async () => {
  const channel = newChannel()
  const { accountId, organizationId } = await addTenant(database, channel)
  const elsewhere = await organization('Elsewhere')
  const sentence = `channel ${channel.channelId} is already account ${accountId} "test" of organization ${organizationId} "test".`
  const form = await operator.post('/api/accounts', { organization: elsewhere, name: 'x', ...channel })
  expect([form.status, form.json.details]).toEqual([400, [{ path: 'channelId', message: sentence }]])
  const line = `${elsewhere},A,${channel.channelId},${channel.channelSecret}`
  expect((await fleetFile([line])).json.details).toEqual([
    { path: 'line 2, column channel_id', message: sentence },
  ])
  expect((await applyCommand([line])).stderr).toContain(sentence)
  const options = ['--channel-id', channel.channelId, '--channel-secret', channel.channelSecret]
  for (const args of [
    ['accounts', 'add', '--organization', elsewhere, '--name', 'x', ...options],
    ['setup', '--organization-name', 'Other', '--name', 'x', ...options],
  ])
    expect((await runCommand(args, env)).stderr).toContain(sentence)
})

it('a channel that another account has is accepted if the operator does not see that account', async () => {
  const channel = newChannel()
  await addTenant(database, channel)
  const organizationIds = [(await addTenant(database)).organizationId]
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds })
  const own = String(organizationIds[0])
  const { status, text } = await manager.post('/api/accounts', { organization: own, name: 'x', ...channel })
  expect([status, text]).toEqual([200, expect.not.stringContaining('already')])
  const again = await fleetFile([`${own},B,${channel.channelId},${channel.channelSecret}`], manager)
  expect(again.status).toBe(202)
})
