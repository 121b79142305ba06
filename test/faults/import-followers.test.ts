/** `oa-audience accounts import-followers` and `accounts verify`, which ask the platform about an account. */
import { beforeEach, expect, it } from 'vitest'
import { findAccount } from '../../src/accounts/account.ts'
import { importNextFollowers } from '../../src/audience/import/import-followers.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { startPlatform } from '../support/platform.ts'
import { startApp } from '../support/service.ts'

const { database, ...created } = await createTestDatabase()
const service = await startApp(database)
const platform = await startPlatform()
const userIds = addPeople(platform, 2_500)
const env = { ...created.env, LINE_API_URL: platform.url }
let tenant: Tenant

beforeEach(async () => {
  platform.misbehave(null)
  platform.settings.isVerified = true
  platform.calls.length = 0
  tenant = await addTenant(database, { channelAccessToken: platform.account.channelAccessToken })
})

const importPage = async () => {
  const account = await findAccount(database, tenant.accountId)
  if (account === null) throw new Error('no account')
  return importNextFollowers(database, new LineApi(platform.url), account, async () => undefined)
}
const commandLine = (...options: string[]) =>
  runCommand(['accounts', 'import-followers', '--account', String(tenant.accountId), ...options], env)

it('adds every follower once, with the relationship alone, and reports progress on standard error', async () => {
  const first = await commandLine('--json')
  expect(JSON.parse(first.stdout)).toEqual({ seen: 2500, added: 2500, skipped: 0 })
  expect(first.stderr).toContain('followers 2,500')
  expect(JSON.parse((await commandLine('--json')).stdout)).toEqual({ seen: 2500, added: 0, skipped: 0 })
  const members = await service.members(tenant)
  expect(members.map(({ userId }) => userId).sort()).toEqual([...userIds].sort())
  for (const member of members)
    expect(member).toMatchObject({ relationship: 'following', followedAt: null, eventCount: 0 })
})

it('overrides older events that arrive after the import, and yields to newer ones', async () => {
  const [early = '', late = ''] = userIds
  const hourAgo = Date.now() - 3_600_000
  for (const userId of [early, late])
    await service.deliver(tenant, [lineEvent('follow', userId, { timestamp: hourAgo })])
  const unfollow = (userId: string, timestamp: number) =>
    service.deliver(tenant, [lineEvent('unfollow', userId, { timestamp })])
  await unfollow(early, hourAgo + 1000)
  const before = await service.member(tenant, late)
  await commandLine()
  expect(await service.member(tenant, late)).toEqual(before)
  await unfollow(late, hourAgo + 1000)
  for (const userId of [early, late])
    expect((await service.member(tenant, userId))?.relationship).toBe('following')
  await unfollow(late, Date.now() + 1000)
  expect((await service.member(tenant, late))?.relationship).toBe('blocked')
})

it('yields to newer events that arrived before the import', async () => {
  const [left = '', returned = ''] = userIds
  await service.deliver(tenant, [
    lineEvent('unfollow', left, { timestamp: Date.now() + 60_000 }),
    lineEvent('unfollow', returned, { timestamp: Date.now() - 60_000 }),
  ])
  await commandLine()
  expect(await service.member(tenant, left)).toMatchObject({ relationship: 'blocked' })
  expect(await service.member(tenant, returned)).toMatchObject({ relationship: 'following' })
})

it('skips erased people unless they have sent a new event since', async () => {
  const [gone = '', returned = ''] = userIds
  for (const userId of [gone, returned]) {
    await service.deliver(tenant, [lineEvent('follow', userId)])
    await service.eraseUser(tenant, userId)
  }
  await service.deliver(tenant, [textMessage(returned, 'hello again', { timestamp: Date.now() + 1000 })])
  expect(JSON.parse((await commandLine('--json')).stdout)).toEqual({ seen: 2500, added: 2498, skipped: 1 })
  expect(await service.member(tenant, gone)).toBeUndefined()
  expect((await service.member(tenant, returned))?.relationship).toBe('following')
})

it('resumes after the last stored page if it was interrupted', async () => {
  expect(await importPage()).toMatchObject({ seen: 1000, isComplete: false })
  platform.calls.length = 0
  expect(JSON.parse((await commandLine('--json')).stdout)).toEqual({ seen: 2500, added: 2500, skipped: 0 })
  expect(platform.calls).toHaveLength(2)
})

it('the next import starts again if the platform no longer accepts the continuation token', async () => {
  await database.query(
    `update official_account set followers_import = jsonb_build_object('next', 'stale', 'atMs', $2::bigint,
            'seen', 7, 'added', 7, 'skipped', 0) where id = $1`,
    [tenant.accountId, Date.now()],
  )
  expect((await commandLine()).stderr).toContain('refuses the list of followers (status 400)')
  expect(JSON.parse((await commandLine('--json')).stdout)).toMatchObject({ seen: 2500, added: 2500 })
})

const sayRemoved = (status: number) => () =>
  platform.misbehave((_, response) => response.writeHead(status).end('{"message":"This API was removed"}'))

it.each<[string, () => void, string]>([
  [
    'lists no followers of the account',
    () => Object.assign(platform.settings, { isVerified: false }),
    'only verified and premium accounts',
  ],
  ['says 401', sayRemoved(401), 'refuses the channel access token (status 401): issue a new one'],
  ['says 410', sayRemoved(410), 'refuses the list of followers (status 410): This API was removed'],
])('fails with the reason if the platform %s', async (_, refuse, reason) => {
  refuse()
  const { status, stderr } = await commandLine()
  expect(status).toBe(1)
  expect(stderr).toContain(reason)
})

it.each([
  ['the platform limits its requests', 429, '{}', 2],
  ['a proxy refuses them with a page', 400, '<h1>Bad Request</h1>', 4],
])('waits and continues if %s', async (_, status, body, count) => {
  let limited = 0
  platform.misbehave((_request, response) => {
    limited += 1
    if (limited === count) platform.misbehave(null)
    response.writeHead(status, { 'retry-after': '1' }).end(body)
  })
  expect(JSON.parse((await commandLine('--json')).stdout)).toMatchObject({ seen: 2500 })
})

async function verifiableAccount(webhook: { path: string; active: boolean }): Promise<string> {
  const id = String(tenant.accountId)
  await database.query('update official_account set bot_user_id = $2 where id = $1', [
    id,
    platform.account.botUserId,
  ])
  const { path, active } = webhook
  platform.settings.webhook = { endpoint: `https://oa.example.com${path.replace(':id', id)}`, active }
  return id
}

it('accounts verify prints its checks as a table, and exits with 1 if one fails', async () => {
  const id = await verifiableAccount({ path: '/api/line/:id', active: true })
  const { stdout, status } = await runCommand(['accounts', 'verify', id], env)
  expect(stdout).toMatch(/access_token +yes/)
  expect(stdout).toMatch(/verified +true/)
  expect(status).toBe(0)
  await verifiableAccount({ path: '/', active: false })
  const failed = await runCommand(['accounts', 'verify', id], env)
  expect(failed).toMatchObject({ status: 1, stdout: expect.stringMatching(/webhook_active +NO/) })
})
