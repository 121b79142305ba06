/** What operators ask first: `doctor` and `members show`. */
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { findingsOf, runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, env } = await createTestDatabase()

it('doctor reports a database that does not sync to disk, and exits with 1', async () => {
  const { stdout, status } = await runCommand(['doctor', '--json'], env)
  const message = expect.stringMatching('fsync is off')
  expect(JSON.parse(stdout)).toContainEqual({ check: 'database', severity: 'error', message })
  expect(status).toBe(1)
})

it('doctor reports every server that does not respond and exits with 1', async () => {
  const { stdout, status } = await runCommand(['doctor', '--json'], {
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
    LINE_API_URL: 'http://127.0.0.1:9',
    REDIS_URL: 'redis://127.0.0.1:9',
  })
  expect(status).toBe(1)
  for (const check of ['database', 'Redis', 'LINE'])
    expect(JSON.parse(stdout)).toContainEqual(expect.objectContaining({ check, severity: 'error' }))
})

it('doctor warns when the clock of the database stepped back', async () => {
  await load(database, `insert into change_mark values (now() + interval '1 hour', 1)`)
  const { stdout } = await runCommand(['doctor', '--json'], env)
  await load(database, 'truncate change_mark')
  const message = expect.stringMatching(/clock stepped back by 3\d\d\d s/)
  expect(JSON.parse(stdout)).toContainEqual({ check: 'database', severity: 'warning', message })
})

it('doctor warns of a port that a Kubernetes Service has set', async () => {
  const { stdout } = await runCommand(['doctor', '--json'], { ...env, CONSOLE_PORT: 'tcp://10.96.0.10:80' })
  const message = expect.stringMatching('ignored, .+ enableServiceLinks: false')
  expect(JSON.parse(stdout)).toContainEqual({ check: 'CONSOLE_PORT', severity: 'warning', message })
})

it('doctor names the account of each finding', async () => {
  const tenant = await addTenant(database)
  expect(await findingsOf(env)).toContainEqual(
    expect.objectContaining({ check: `account ${tenant.accountId}`, severity: 'warning' }),
  )
})

it('members show lists the events and edits that led to the state of a member, newest first', async () => {
  const { env: ownEnv, database: own, service, tenant } = await setUpService()
  const AT = 1_700_000_000_000
  await service.deliver(tenant, [
    lineEvent('unfollow', 'U1', { timestamp: AT + 1000 }),
    lineEvent('follow', 'U1', { timestamp: AT }),
  ])
  const id = (await service.member(tenant, 'U1'))?.id
  for (let i = 0; i < 2; i += 1) await service.put(tenant, id, { tags: ['vip'], externalId: 'customer-1' })
  await own.query(`update audience_member set attributes = '{"cups":3}' where user_id = 'U1'`)
  const args = ['members', 'show', '--account', String(tenant.accountId), 'U1', '--json']
  const { member, timeline } = JSON.parse((await runCommand(args, ownEnv)).stdout)
  expect(member).toMatchObject({ userId: 'U1', relationship: 'blocked', eventCount: 2 })
  expect(timeline).toMatchObject([
    { effect: 'attributes by another program', changes: { attributes: { cups: [null, 3] } } },
    { effect: `externalId, tags by ${tenant.headers['x-client-id']}`, changes: { tags: { added: ['vip'] } } },
    { effect: 'blocked', changes: null },
    { effect: 'following' },
  ])
})
