/** The log of what commands did with organizations, accounts, members and events. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { randomAccount } from '../../tools/simulator/state.ts'
import { runCommand, runJson } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { addFailedEvent, load, loadMembers } from '../support/load.ts'
import { startPlatform } from '../support/platform.ts'
import { temporaryDirectory } from '../support/process.ts'

const { database, ...created } = await createTestDatabase()
const platform = await startPlatform()
const env = { ...created.env, LINE_API_URL: platform.url }

const run = (...args: string[]) => runJson(args, env)

const activityOf = (kind: string, id: unknown) =>
  load<{ action: string; changes: unknown }>(
    database,
    `select action, changes from activity
      where object_kind = $1 and object_id = $2 and actor_kind = 'command' and actor like '%@%' order by id`,
    [kind, String(id)],
  )

it('has the changed fields of an account, and only that a secret was replaced', async () => {
  const { organizationId } = await addTenant(database)
  platform.addAccount({ ...randomAccount('A'), channelId: '77', channelSecret: 'a'.repeat(32) })
  const secrets = { '--channel-secret': 'a'.repeat(32), '--chat-secret': 'chat-secret' }
  const options = Object.entries(secrets).flat()
  const { id, oaHash } = await run(
    ...['accounts', 'add', '--organization', String(organizationId), '--name', 'A', '--channel-id', '77'],
    ...options,
  )
  await run('accounts', 'update', id, '--name', 'B', ...options, '--basic-id', '@b', '--oa-hash', 'new-hash')
  await run('accounts', 'update', id, '--name', 'B', ...options)
  await run('accounts', 'update', id, '--chat-secret', '')
  await run('accounts', 'remove', id, '--yes')
  expect(await activityOf('account', id)).toEqual([
    {
      action: 'account.added',
      changes: {
        name: [null, 'A'],
        channelId: [null, '77'],
        channelSecret: 'replaced',
        chatSecret: 'replaced',
      },
    },
    {
      action: 'account.updated',
      changes: { name: ['A', 'B'], basicId: [null, '@b'], oaHash: 'replaced' },
    },
    { action: 'account.updated', changes: { chatSecret: 'removed' } },
    { action: 'account.removed', changes: { name: ['B', null] } },
  ])
  const log = JSON.stringify(await load(database, 'select changes from activity', []))
  for (const secret of [...Object.values(secrets), oaHash, 'new-hash']) expect(log).not.toContain(secret)
})

it('has each account of a fleet file, its webhook, its verification and its followers', async () => {
  const { organizationId } = await addTenant(database)
  const { account } = platform
  platform.settings.webhook = {
    endpoint: 'https://user:pw@tool.example/hook?token=of-the-tool',
    active: true,
  }
  const file = join(temporaryDirectory(), 'fleet.csv')
  const lines = [
    'organization,name,channel_id,channel_secret,channel_access_token',
    [organizationId, 'Shop', account.channelId, account.channelSecret, account.channelAccessToken],
  ]
  writeFileSync(file, lines.join('\n'))
  const apply = () =>
    runCommand(['accounts', 'apply', file, '--json'], { ...env, PUBLIC_URL: 'https://oa.example.com' })
  const [row] = JSON.parse((await apply()).stdout)
  await apply()
  const activity = await activityOf('account', row.account)
  // The simulated platform has no service to test, so the verification fails and no follower is imported.
  expect(activity.map(({ action }) => action)).toEqual([
    'account.added',
    'account.webhook_set',
    'account.verified',
    'account.verified',
  ])
  expect(activity[1]?.changes).toEqual({
    url: ['https://tool.example/hook?…', `https://oa.example.com/api/line/${row.account}`],
  })
  expect(activity[2]?.changes).toEqual({ verified: false, failed: ['webhook_test'] })
  await run('accounts', 'import-followers', '--account', row.account)
  expect((await activityOf('account', row.account)).at(-1)).toEqual({
    action: 'account.followers_imported',
    changes: { seen: 0, added: 0, skipped: 0 },
  })
})

const tenant = await addTenant(database)
await loadMembers(database, tenant, 3)
const account = ['--account', String(tenant.accountId)]

/** Returns what `work` records. */
async function recordedBy(work: () => Promise<unknown>) {
  const [last] = await load<{ id: bigint }>(database, 'select coalesce(max(id), 0) as id from activity')
  await work()
  return load(
    database,
    `select action, actor_kind, channel_oa_id as account, object_id as object, changes from activity
      where id > $1 order by id`,
    [last?.id],
  )
}

const ofAccount = { account: tenant.accountId, object: String(tenant.accountId) }

it('has one row for an import, with its format and size', async () => {
  const input = '{"userId":"U1","tags":["a"]}\n{"userId":"Unobody","tags":["a"]}'
  const recorded = await recordedBy(() => runCommand(['audience', 'import', ...account, '-'], env, { input }))
  const changes = { format: 'ndjson', bytes: String(input.length) }
  expect(recorded).toEqual([{ action: 'members.imported', actor_kind: 'command', ...ofAccount, changes }])
})

it('has one row for an export, without the personal text of its filters', async () => {
  const changes = { format: 'csv', filters: {} }
  const all = ['audience', 'export', ...account, '--format', 'csv']
  expect(await recordedBy(() => runCommand(all, env))).toEqual([
    { action: 'members.exported', actor_kind: 'command', ...ofAccount, changes },
  ])
  const [filtered] = await recordedBy(() => runCommand([...all, '--q', 'Somsri', '--tag', 'vip'], env))
  expect(filtered).toMatchObject({ changes: { format: 'csv', filters: { q: 'given', tag: ['vip'] } } })
})

it('has one row for a retry of events', async () => {
  const ids = [await addFailedEvent(database, tenant, 'x'), await addFailedEvent(database, tenant, 'x')]
  expect(await recordedBy(() => runCommand(['events', 'retry', ...ids], env))).toEqual([
    { action: 'events.retried', actor_kind: 'command', account: null, object: null, changes: { events: 2 } },
  ])
})
