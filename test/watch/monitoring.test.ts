/** What the service finds out about accounts by itself. */
import { expect, it } from 'vitest'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { checkDueAccounts } from '../../src/watch/account-monitor.ts'
import { readFleetCharts } from '../../src/watch/fleet.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { addTenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { startPlatform, verifierOn } from '../support/platform.ts'
import { setUpService } from '../support/service.ts'
import { statusOf } from '../support/status.ts'

const DAY_MS = 86_400_000

async function setUp() {
  const account = randomAccount('Corner Coffee')
  const platform = await startPlatform(account)
  const { database, service } = await setUpService()
  await load(database, 'truncate official_account cascade')
  const { channelId, channelSecret, channelAccessToken, botUserId } = account
  const tenant = await addTenant(database, { channelId, channelSecret, channelAccessToken, botUserId })
  const publicUrl = 'https://hooks.example.com'
  platform.settings.webhook = { endpoint: `${publicUrl}/api/line/${tenant.accountId}`, active: true }
  await load(
    database,
    `update official_account set created_at = now() - interval '30 days';
     insert into delivery_hour (channel_oa_id, hour, source, deliveries, last_at)
     values (${tenant.accountId}, date_trunc('hour', now()), 'line', 1, now())`,
  )
  const verifier = verifierOn(platform, publicUrl)
  const monitor = { checkDue: () => checkDueAccounts(database, verifier) }
  const state = async () => {
    const { account, reasons } = await statusOf(database, tenant)
    return { ...account, reasons }
  }
  const makeDue = () => load(database, 'update account_check set due_at = now(), count_due_at = now()')
  return { platform, database, service, tenant, monitor, state, makeDue }
}

it('verifies an account and reads its figures, once an hour', async () => {
  const { platform, monitor, state } = await setUp()
  platform.settings.quota = { limit: 200, used: 17 }
  expect(await monitor.checkDue()).toBe(1)
  expect(await state()).toMatchObject({
    verified: true,
    failedChecks: [],
    quotaLimit: 200,
    quotaUsed: 17,
    fault: null,
  })
  const { tokenExpiresAt } = await state()
  expect(Date.parse(tokenExpiresAt ?? '')).toBeGreaterThan(Date.now() + 29 * DAY_MS)
  const calls = platform.calls.length
  expect(await monitor.checkDue()).toBe(0)
  expect(platform.calls).toHaveLength(calls)
})

it.each([
  [{ limit: 200, used: 159 }, []],
  [{ limit: 200, used: 160 }, ['quota_low']],
  [{ limit: 200, used: 199 }, ['quota_low']],
  [{ limit: 200, used: 200 }, ['quota_used_up']],
  [{ limit: 0, used: 0 }, ['quota_used_up']],
  [{ limit: null, used: 9_000 }, []],
])('warns when 80 %% of the messages of a month are used: %j', async (quota, expected) => {
  const { platform, monitor, state } = await setUp()
  platform.settings.quota = quota
  await monitor.checkDue()
  const { reasons, status } = await state()
  expect(reasons.filter((reason) => reason.startsWith('quota'))).toEqual(expected)
  expect(status).toBe(expected.length === 0 ? 'ok' : 'degraded')
})

it('notifies endpoints only of another outcome', async () => {
  const { platform, database, tenant, monitor, makeDue } = await setUp()
  await load(
    database,
    `insert into endpoint (channel_oa_id, url, format) values (${tenant.accountId}, 'https://crm.example.com', 'members')`,
  )
  const takeNotices = () =>
    load(database, `delete from endpoint_delivery where type = 'account.verified' returning type`)
  for (const expected of [1, 0]) {
    await monitor.checkDue()
    expect(await takeNotices()).toHaveLength(expected)
    await makeDue()
  }
  platform.settings.webhook = null
  await monitor.checkDue()
  expect(await takeNotices()).toHaveLength(1)
})

it('keeps the last outcome and checks again within minutes while LINE is unreachable', async () => {
  const { platform, database, monitor, state, makeDue } = await setUp()
  await monitor.checkDue()
  platform.misbehave((_, response) => void response.writeHead(500).end())
  await makeDue()
  await monitor.checkDue()
  expect(await state()).toMatchObject({ verified: true, fault: expect.stringContaining('unreachable') })
  const [due] = await load(
    database,
    `select due_at < now() + interval '11 minutes' as is_soon from account_check`,
  )
  expect(due).toEqual({ is_soon: true })
})

it('checks an account again as soon as its credentials change', async () => {
  const { database, monitor } = await setUp()
  expect([await monitor.checkDue(), await monitor.checkDue()]).toEqual([1, 0])
  await load(database, `update official_account set name = 'Corner Tea'`)
  expect(await monitor.checkDue()).toBe(0)
  await load(database, `update official_account set channel_access_token = 'another'`)
  expect(await monitor.checkDue()).toBe(1)
})

it('counts members by relationship, again only after they have changed', async () => {
  const { database, service, tenant, monitor, state } = await setUp()
  await loadMembers(database, tenant, 30)
  await service.deliver(tenant, [lineEvent('follow', 'U1'), lineEvent('unfollow', 'U2')])
  await monitor.checkDue()
  expect(await refreshDueFigures(database)).toBe(1)
  expect(await refreshDueFigures(database)).toBe(0)
  const first = await state()
  expect(first).toMatchObject({ members: 30, following: 1, blocked: 1 })
  const [charts] = await readFleetCharts(database, null, [tenant.accountId])
  expect(charts?.days.at(-1)).toBe(1)
  const passTenMinutes = () => load(database, 'update account_check set count_due_at = now()')
  await passTenMinutes()
  expect(await refreshDueFigures(database)).toBe(1)
  expect((await state()).countedAt).toBe(first.countedAt)
  await service.deliver(tenant, [lineEvent('follow', 'U3')])
  await passTenMinutes()
  expect(await refreshDueFigures(database)).toBe(1)
  expect(await state()).toMatchObject({ members: 30, following: 2 })
})

it('counts a day again after it has ended, and then only if its figures change', async () => {
  const { database, makeDue } = await setUp()
  const count = async () => {
    await makeDue()
    await load(database, 'update account_check set counted_at = null')
    await refreshDueFigures(database)
    return load(database, 'select day::text, events_counted_at from account_day order by day')
  }
  const [today, ...others] = await count()
  expect([today?.day, others]).toEqual([expect.any(String), []])
  await load(
    database,
    `update account_day set day = day - 1, events_counted_at = events_counted_at - interval '1 day'`,
  )
  const [ended] = await count()
  expect(Date.now() - Date.parse(String(ended?.events_counted_at))).toBeLessThan(DAY_MS / 2)
  expect((await count())[0]).toEqual(ended)
})
