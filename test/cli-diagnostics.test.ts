/** `doctor` and `members show`: what operators ask first. */
import { expect, it } from 'vitest'
import { lineEvent } from '../tools/simulator/events.ts'
import { simulatePlatform } from '../tools/simulator/platform.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from './support/database.ts'
import { runCommandAsync } from './support/process.ts'
import { setUpTest, startAppForTest } from './support/service.ts'

it('doctor says of each part whether it is well, and how to mend it', async () => {
  const { database, connection } = await createTestDatabase()
  const platform = await simulatePlatform()
  const service = await startAppForTest(database)
  const [good, silent, foreign, mended, nameless, tested, bare, knocked, stale] = [
    await addTenant(database, { channelId: '2000000001' }),
    await addTenant(database),
    await addTenant(database),
    await addTenant(database, { channelAccessToken: 'token' }),
    await addTenant(database),
    await addTenant(database),
    await addTenant(database),
    await addTenant(database),
    await addTenant(database),
  ]
  for (const who of [good, nameless]) await service.deliver(who, [lineEvent('follow', 'U1')])
  await service.deliver({ ...foreign, botUserId: 'Uanother' }, [lineEvent('follow', 'U1')])
  await service.deliver({ ...mended, botUserId: 'Uanother' }, [lineEvent('follow', 'U1')])
  await database.query(
    `update official_account set foreign_destination_at = now() - interval '8 days' where id = $1`,
    [mended.accountId],
  )
  const wrong = (tenant: Tenant) => ({ ...tenant, channelSecret: 'another secret' })
  // The platform's test delivery has no events; that it went well stands in the verification.
  await service.deliver(wrong(tested), [lineEvent('follow', 'U1')])
  await service.deliver(wrong(knocked), [lineEvent('follow', 'U1')])
  await service.deliver(wrong(stale), [])
  await service.deliver(stale, [lineEvent('follow', 'U1')])
  for (let i = 0; i < 3; i += 1) await service.deliver(wrong(stale), [lineEvent('follow', 'U1')])
  await database.query(`update official_account set chat_secret = 'x' where id = $1`, [stale.accountId])
  await service.chat({ ...stale, chatSecret: 'another secret' }, { event: 'x' })
  // What the web page sends says nothing of the channel's secret.
  await service.track(stale, [{ type: 'page', userId: 'U1', messageId: 'm1' }])
  // What was counted is written at the end, at the latest.
  await service.app.close()
  // The last good one is a second older than the last wrong one, and the other way round.
  await database.query(
    `update refused_delivery set last_at = now() - interval '1 minute' where channel_oa_id = $1`,
    [knocked.accountId],
  )
  await database.query(
    `update event set received_at = received_at - interval '1 minute' where channel_oa_id = $1 and source = 'line'`,
    [stale.accountId],
  )
  await startAppForTest(database).then((again) => again.deliver(knocked, [lineEvent('follow', 'U1')]))
  await database.query(`update official_account set channel_secret = null where id = $1`, [bare.accountId])
  await database.query(
    `update official_account set verified_at = now(), verification = '{"checks": [{"name": "webhook_test", "ok": true}]}'
      where id = $1`,
    [tested.accountId],
  )
  const env = { DATABASE_URL: urlOf(connection), LINE_API_URL: platform.url }
  const { stdout, status } = await runCommandAsync(['doctor', '--json'], env)
  expect(status).toBe(1)
  const findings = JSON.parse(stdout) as Array<{ check: string; state: string; message: string }>
  // The worst of an account comes first.
  const states = Object.fromEntries(findings.toReversed().map(({ check, state }) => [check, state]))
  expect(states).toMatchObject({
    configuration: 'ok',
    database: 'ok',
    migrations: 'ok',
    platform: 'ok',
    clock: 'ok',
    [`account ${good.accountId}`]: 'ok',
    [`account ${silent.accountId}`]: 'look',
    [`account ${nameless.accountId}`]: 'look',
    [`account ${foreign.accountId}`]: 'WRONG',
    [`account ${mended.accountId}`]: 'ok',
    [`account ${tested.accountId}`]: 'look',
    [`account ${bare.accountId}`]: 'WRONG',
    [`account ${knocked.accountId}`]: 'look',
    [`account ${stale.accountId}`]: 'WRONG',
  })
  const messageOf = ({ accountId }: Tenant) =>
    findings.flatMap(({ check, message }) => (check === `account ${accountId}` ? message : [])).join('; ')
  expect(messageOf(nameless)).toContain('no access token and no channel id')
  expect(messageOf(knocked)).toContain('wrong signature in 7 days: 1,')
  expect(messageOf(stale)).toContain('wrong signature in 7 days: 5,')
  // One fault hides no other.
  expect(messageOf(bare)).toMatch(/no channel secret.*nothing was delivered.*no access token/)
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
  const { database, connection, service, tenant } = await setUpTest()
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
  const member = await service.member(tenant, 'U1')
  const edit = (body: object) =>
    service.call('PUT', `/api/audience/${member?.id}`, {
      headers: { ...tenant.headers, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  await edit({ tags: ['vip'], externalId: 'customer-1' })
  await edit({ tags: ['vip'] })
  await database.query(`update audience_member set attributes = '{"cups":3}' where user_id = 'U1'`)
  const env = { DATABASE_URL: urlOf(connection) }
  const account = String(tenant.accountId)
  const shown = JSON.parse(
    (await runCommandAsync(['members', 'show', '--account', account, 'U1', '--json'], env)).stdout,
  )
  expect(shown.member).toMatchObject({ userId: 'U1', relationship: 'blocked', eventCount: 3 })
  expect(shown.timeline.map(({ says }: { says: string }) => says)).toEqual([
    'attributes by a command or another program',
    `externalId, tags by client ${tenant.headers['x-client-id']}`,
    'relationship blocked',
    'named as joined or left',
    'relationship following',
  ])
  expect(JSON.stringify(shown.timeline)).not.toContain('vip')
  await service.call('DELETE', `/api/audience/${member?.id}`, { headers: tenant.headers })
  expect(await database.query('select from member_edit')).toEqual([])
  const missing = await runCommandAsync(['members', 'show', '--account', account, 'U404'], env)
  expect(missing).toMatchObject({ status: 1, stderr: `oa-audience: account ${account} has no member U404\n` })
  await database.close()
})
