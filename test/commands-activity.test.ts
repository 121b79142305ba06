/** The log of what commands did with members and events, as the console records it. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { runCommand } from './support/command.ts'
import { signedIn, startConsole } from './support/console.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { load, loadMembers } from './support/load.ts'

const { database, env } = await createTestDatabase()
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

async function addUnapplied(): Promise<string> {
  const [added] = await load<{ id: bigint }>(
    database,
    `insert into event (channel_oa_id, source, kind, key, occurred_at, failure, payload)
     values ($1, 'line', 'message', $2, now(), 'x', null) returning id`,
    [tenant.accountId, randomUUID()],
  )
  return String(added?.id)
}

const ofAccount = { account: tenant.accountId, object: String(tenant.accountId) }

it('has one row for an import, with its format and size', async () => {
  const input = [
    { userId: 'U1', tags: ['a'] },
    { userId: 'Unobody', tags: ['a'] },
  ]
  const lines = input.map((entry) => JSON.stringify(entry)).join('\n')
  const recorded = await recordedBy(() =>
    runCommand(['audience', 'import', ...account, '-'], env, { input: lines }),
  )
  const changes = { format: 'ndjson', bytes: String(lines.length) }
  expect(recorded).toEqual([{ action: 'members.imported', actor_kind: 'command', ...ofAccount, changes }])
})

it('has no row for an import that ended before its first line', async () => {
  expect(await recordedBy(() => runCommand(['audience', 'import', ...account, '/nonexistent'], env))).toEqual(
    [],
  )
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

it('has one row for a retry of events, on the command line and in the console', async () => {
  const ids = [await addUnapplied(), await addUnapplied()]
  expect(await recordedBy(() => runCommand(['events', 'retry', ...ids], env))).toEqual([
    { action: 'events.retried', actor_kind: 'command', account: null, object: null, changes: { events: 2 } },
  ])
  const operator = await signedIn((await startConsole(database)).url)
  const id = await addUnapplied()
  expect(await recordedBy(() => operator.post(`/api/events/${id}/retry`))).toEqual([
    {
      ...{ action: 'events.retried', actor_kind: 'token', account: tenant.accountId, object: id },
      changes: { events: 1 },
    },
  ])
})
