/** A removal that began ends, also if its operator, its process or other tasks do not. */
import { afterEach, expect, it } from 'vitest'
import { takeTurn } from '../src/jobs/turn.ts'
import { listFleet } from '../src/watch/fleet.ts'
import { runCommand } from './support/command.ts'
import { addSignedIn, signedIn, startConsole } from './support/console.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { load, loadMembers } from './support/load.ts'

const { database, env } = await createTestDatabase()
const { url } = await startConsole(database)
const owner = await signedIn(url)

afterEach(() =>
  database.query(`update job set status = 'done', finished_at = now() where finished_at is null`),
)

async function addAccount(members = 10) {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, members)
  const path = `/api/accounts/${tenant.accountId}`
  const countRows = async () => {
    const [row] = await database.query<{ members: number; accounts: number }>(
      `select (select count(*)::int from audience_member where channel_oa_id = $1) as members,
              (select count(*)::int from official_account where id = $1) as accounts`,
      [tenant.accountId],
    )
    return row
  }
  return { tenant, path, countRows }
}

const GONE = { members: 0, accounts: 0 }

async function finishJobs() {
  while (await takeTurn(database));
}

it('ends although its operator was disabled, demoted or moved to other organizations', async () => {
  for (const change of [`status = 'disabled'`, `role = 'viewer'`, `organization_ids = '{-1}'`]) {
    const { path, countRows } = await addAccount()
    const manager = await addSignedIn({ url, database }, { role: 'manager' })
    expect((await manager.post(`${path}/remove`, { name: 'test' })).status).toBe(202)
    await database.query(`update operator set ${change} where id = $1`, [manager.id])
    await finishJobs()
    expect(await countRows(), change).toEqual(GONE)
  }
})

it('cannot be cancelled', async () => {
  const { path, countRows } = await addAccount()
  const { job } = (await owner.post(`${path}/remove`, { name: 'test' })).json
  const { status, json } = await owner.post(`/api/jobs/${job.id}/cancel`)
  expect([status, json.message]).toEqual([400, expect.stringContaining('cannot be cancelled')])
  const command = await runCommand(['tasks', 'cancel', job.id], env)
  expect([command.status, command.stderr]).toEqual([1, expect.stringContaining('cannot be cancelled')])
  await finishJobs()
  expect(await countRows()).toEqual(GONE)
})

it('goes on after an unexpected error', async () => {
  const { path, countRows } = await addAccount()
  await owner.post(`${path}/remove`, { name: 'test' })
  await load(
    database,
    `create function fail() returns trigger language plpgsql as $$ begin raise division_by_zero; end $$`,
  )
  await load(
    database,
    'create trigger fail before delete on audience_member for each statement execute function fail()',
  )
  await expect(finishJobs()).rejects.toThrow()
  expect(await takeTurn(database)).toBe(false)
  await load(database, 'drop trigger fail on audience_member')
  await load(database, `update job set leased_until = '-infinity'`)
  await finishJobs()
  expect(await countRows()).toEqual(GONE)
})

it('hides the account from the fleet, which would ask for the secret that the removal has deleted', async () => {
  const { tenant, path } = await addAccount()
  const isListed = async () => (await listFleet(database, null)).some(({ id }) => id === tenant.accountId)
  expect(await isListed()).toBe(true)
  await owner.post(`${path}/remove`, { name: 'test' })
  expect(await isListed()).toBe(false)
})

it('begins although four uploads of the organization wait for their files', async () => {
  const { path } = await addAccount()
  const startUpload = () => owner.post(`${path}/audience/import`, { format: 'csv', size: 100 })
  for (let count = 0; count < 4; count += 1) expect((await startUpload()).status).toBe(202)
  expect((await startUpload()).status).toBe(429)
  expect((await owner.post(`${path}/remove`, { name: 'test' })).status).toBe(202)
})
