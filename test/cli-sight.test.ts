/** `doctor` and `members show`: what operators ask first. */
import { expect, it } from 'vitest'
import { lineEvent } from '../src/simulate/events.ts'
import { simulatePlatform } from '../src/simulate/platform.ts'
import { addTenant, createTestDatabase, urlOf } from './support/database.ts'
import { runCommandAsync } from './support/process.ts'
import { startAppForTest } from './support/service.ts'

it('doctor says of each part whether it is well, and how to mend it', async () => {
  const { database, connection } = await createTestDatabase()
  const platform = await simulatePlatform()
  const service = await startAppForTest(database)
  const [good, silent, foreign, bare] = [
    await addTenant(database),
    await addTenant(database),
    await addTenant(database),
    await addTenant(database),
  ]
  await service.deliver(good, [lineEvent('follow', 'U1')])
  await service.deliver({ ...foreign, botUserId: 'Uanother' }, [lineEvent('follow', 'U1')])
  await database.query(`update official_account set channel_secret = null where id = $1`, [bare.accountId])
  const env = { DATABASE_URL: urlOf(connection), LINE_API_URL: platform.url }
  const { stdout, status } = await runCommandAsync(['doctor', '--json'], env)
  expect(status).toBe(1)
  const states = Object.fromEntries(
    (JSON.parse(stdout) as Array<{ check: string; state: string }>).map(({ check, state }) => [check, state]),
  )
  expect(states).toMatchObject({
    configuration: 'ok',
    database: 'ok',
    migrations: 'ok',
    platform: 'ok',
    clock: 'ok',
    [`account ${good.accountId}`]: 'ok',
    [`account ${silent.accountId}`]: 'look',
    [`account ${foreign.accountId}`]: 'WRONG',
    [`account ${bare.accountId}`]: 'WRONG',
  })
  const away = await runCommandAsync(['doctor', '--json'], {
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
    LINE_API_URL: 'http://127.0.0.1:9',
    REDIS_URL: 'redis://127.0.0.1:9',
  })
  expect(away.status).toBe(1)
  for (const check of ['database', 'Redis', 'platform']) {
    expect(JSON.parse(away.stdout)).toContainEqual(expect.objectContaining({ check, state: 'WRONG' }))
  }
  await platform.close()
  await database.close()
})

it('members show tells what made a person what they are', async () => {
  const { database, connection } = await createTestDatabase()
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  const at = 1_700_000_000_000
  await service.deliver(tenant, [
    lineEvent('unfollow', 'U1', { timestamp: at + 2000 }),
    lineEvent('follow', 'U1', { timestamp: at }),
    lineEvent('memberJoined', null, {
      timestamp: at + 1000,
      source: { type: 'group', groupId: 'C1' },
      joined: { members: [{ type: 'user', userId: 'U1' }] },
    }),
  ])
  const env = { DATABASE_URL: urlOf(connection) }
  const account = String(tenant.accountId)
  const shown = JSON.parse(
    (await runCommandAsync(['members', 'show', '--account', account, 'U1', '--json'], env)).stdout,
  )
  expect(shown.member).toMatchObject({ userId: 'U1', relationship: 'blocked', eventCount: 3 })
  expect(shown.events.map(({ says }: { says: string }) => says)).toEqual([
    'relationship blocked',
    'named as joined or left',
    'relationship following',
  ])
  const missing = await runCommandAsync(['members', 'show', '--account', account, 'U404'], env)
  expect(missing).toMatchObject({ status: 1, stderr: `oa-audience: account ${account} has no member U404\n` })
  await database.close()
})
