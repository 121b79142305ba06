/** What operators see of all accounts: one status for each, its problems, and how to fix them. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { Metrics } from '../../src/observability/metrics.ts'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { REASONS } from '../../src/watch/account-status.ts'
import { listFleet, readFleetCharts } from '../../src/watch/fleet.ts'
import { accountWatch, confirmStatus, listProblems } from '../../src/watch/store-statuses.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { eventually } from '../support/process.ts'
import { type Service, startApp } from '../support/service.ts'
import { statusOf } from '../support/status.ts'

const { database, connection } = await createTestDatabase()

const usable = { channelId: '2000000001' }
const follow = [lineEvent('follow', 'U1')]
const withWrongSecret = (tenant: Tenant): Tenant => ({ ...tenant, channelSecret: 'another secret' })

/** Runs `work` against a service and closes it, which writes the counts of deliveries. */
async function onService(work: (service: Service) => Promise<unknown>): Promise<void> {
  const service = await startApp(openDatabase(connection))
  await work(service)
  await service.app.close()
}

const set = (tenant: Tenant, columns: string) =>
  database.query(`update official_account set ${columns} where id = $1`, [tenant.accountId])

/** What the account monitor does every ten minutes. */
async function refreshFigures({ accountId }: Tenant) {
  await database.query('update account_check set count_due_at = now() where channel_oa_id = $1', [accountId])
  while ((await refreshDueFigures(database)) > 0);
}

/** Deliveries of LINE in the given hours before the present one. */
const deliveredIn = (tenant: Tenant, hoursAgo: number[]) =>
  database.query(
    `insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, last_at)
     select $1, date_trunc('hour', now()) - h * interval '1 hour', 'line', 1, 1,
            date_trunc('hour', now()) - h * interval '1 hour'
       from unnest($2::int[]) as h`,
    [tenant.accountId, hoursAgo],
  )

/** Moves what was delivered so far into the past. */
const ageDeliveries = ({ accountId }: Tenant) =>
  database.query(
    `update delivery_hour set last_refused_at = last_refused_at - interval '1 minute', last_at = last_at - interval '1 minute'
      where channel_oa_id = $1`,
    [accountId],
  )

it('the status for an account is ok if deliveries arrive', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) => service.deliver(tenant, follow))
  const { status, reasons, account } = await statusOf(database, tenant)
  expect({ status, reasons }).toEqual({ status: 'ok', reasons: [] })
  expect(account).toMatchObject({ deliveries24h: 1, events24h: 1, refused: 0, unapplied: 0 })
  const [charts] = await readFleetCharts(database, null, [tenant.accountId])
  expect(charts?.hours.at(-1)).toBe(1)
})

it('the status for an account counts deliveries of 24 hours, those since the stored counts and those of an account that nobody counted', async () => {
  const tenant = await addTenant(database, usable)
  await deliveredIn(tenant, [0, 1, 5, 23, 24, 30])
  const counts = async () => {
    const { deliveries24h, failed24h } = (await statusOf(database, tenant)).account
    return { deliveries24h, failed24h }
  }
  expect(await counts()).toEqual({ deliveries24h: 4, failed24h: 0 })
  await refreshFigures(tenant)
  expect(await counts()).toEqual({ deliveries24h: 4, failed24h: 0 })
  await database.query(
    `update delivery_hour set deliveries = 3, failed = 2 where channel_oa_id = $1 and hour = date_trunc('hour', now())`,
    [tenant.accountId],
  )
  expect(await counts()).toEqual({ deliveries24h: 6, failed24h: 2 })
  await database.query(
    `update account_check set judged_at = now() - interval '21 minutes', deliveries_before = 99 where channel_oa_id = $1`,
    [tenant.accountId],
  )
  expect(await counts()).toEqual({ deliveries24h: 6, failed24h: 2 })
})

it('the status for an account is degraded if an event could not be applied', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) =>
    service.deliver(tenant, [{ ...lineEvent('follow', 'U1'), timestamp: 'never' }]),
  )
  expect(await statusOf(database, tenant)).toMatchObject({
    status: 'degraded',
    reasons: ['events_unapplied'],
  })
})

it('the status for an account is broken for 7 days after a delivery that names another bot', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) => service.deliver({ ...tenant, botUserId: 'Uanother' }, follow))
  expect(await statusOf(database, tenant)).toMatchObject({
    status: 'broken',
    reasons: ['foreign_destination'],
  })
  await set(tenant, `foreign_destination_at = now() - interval '8 days'`)
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'ok' })
})

it('the status for an account is degraded if a wrong signature follows valid deliveries, because anybody can send one', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) => service.deliver(tenant, follow))
  await ageDeliveries(tenant)
  await onService((service) => service.deliver(withWrongSecret(tenant), follow))
  expect(await statusOf(database, tenant)).toMatchObject({
    status: 'degraded',
    reasons: ['line_signature_doubtful'],
  })
})

it('the status for an account is ok if a valid delivery followed one with a wrong signature', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) => service.deliver(withWrongSecret(tenant), follow))
  await ageDeliveries(tenant)
  await onService((service) => service.deliver(tenant, follow))
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'ok', account: { refused: 1 } })
})

it('the status for an account does not take a tracking event as proof of a valid channel secret', async () => {
  const tenant = await addTenant(database, usable)
  await onService((service) => service.deliver(withWrongSecret(tenant), follow))
  await ageDeliveries(tenant)
  await onService((service) => service.track(tenant, [{ type: 'page', userId: 'U1', messageId: 'm1' }]))
  expect((await statusOf(database, tenant)).reasons).toContain('line_signature_refused')
})

const WEEK = 168
/** the same hours of the last four weeks */
const weekly = (hours: number[]) => [1, 2, 3, 4].flatMap((week) => hours.map((hour) => week * WEEK + hour))

it('a silence is unusual if it covers four hours that were busy in each of the last four weeks', async () => {
  const tenant = await addTenant(database, usable)
  await deliveredIn(tenant, [5, ...weekly([5, 4, 3, 2, 1])])
  const { status, reasons, account } = await statusOf(database, tenant)
  expect({ status, reasons }).toEqual({ status: 'quiet', reasons: ['unusually_quiet'] })
  expect(account.silenceChance).toBeCloseTo(1 / 6 ** 4)
})

it.each([
  ['at that time of each week', [20, ...weekly([20, 21, 22])]],
  ['for less than 7 days without a rhythm', [6 * 24]],
  ['in its first week', Array.from({ length: 100 }, (_, index) => index + 6)],
])('a silence is usual if the account is silent %s', async (_, hours) => {
  const tenant = await addTenant(database, usable)
  await deliveredIn(tenant, hours)
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'ok', account: { silenceChance: null } })
})

it('a silence is judged by its own hours of the week, not by those around them', async () => {
  const tenant = await addTenant(database, usable)
  await deliveredIn(tenant, [5, ...weekly([5, 4, 0, -1, -2, -3])])
  expect((await statusOf(database, tenant)).account.silenceChance).toBeCloseTo(1 / 6)
})

it('a silence of more than 7 days is named even without a rhythm', async () => {
  const tenant = await addTenant(database, usable)
  await deliveredIn(tenant, [8 * 24])
  expect(await statusOf(database, tenant)).toMatchObject({ status: 'quiet', reasons: ['silent_for_days'] })
})

it.each([
  ['token_expires', 'in 6 days', `token_expires_at = now() + interval '6 days'`, true],
  ['token_expires', 'in 8 days', `token_expires_at = now() + interval '8 days'`, false],
  ['platform_unreachable', 'for 7 hours', `fault = 'timeout', checked_at = now() - interval '7 hours'`, true],
  [
    'platform_unreachable',
    'for 5 hours',
    `fault = 'timeout', checked_at = now() - interval '5 hours'`,
    false,
  ],
])('%s: %s', async (reason, _, columns, isReported) => {
  const tenant = await addTenant(database, usable)
  await database.query(`update account_check set ${columns} where channel_oa_id = $1`, [tenant.accountId])
  expect((await statusOf(database, tenant)).reasons.includes(reason)).toBe(isReported)
})

// What LINE counts at the end of the day after 5,000 followers and 400 blocks, and what was delivered on that day.
it.each([
  ['nothing if the changes agree, for any totals', 5060, 405, [60, 15, 20], null],
  ['nothing if 10 people are missing', 5060, 400, [50, 0, 0], null],
  ['follows that were not delivered', 5060, 400, [40, 0, 0], 20],
  ['blocks that were not delivered', 5000, 430, [0, 0, 5], 25],
  ['nothing in a return that LINE marks as a first follow', 5000, 370, [30, 0, 0], null],
])(
  'a comparison with the statistics of LINE finds %s',
  async (_, followers, blocks, [first, returns, unfollows], missing) => {
    const tenant = await addTenant(database, usable)
    await onService((service) => service.deliver(tenant, follow))
    await database.query(
      `insert into account_day (channel_oa_id, day, line_followers, line_blocks, first_follows, returns, unfollows, events_counted_at)
     select $1::bigint, (now() at time zone 'UTC')::date - 3, 5000, 400, null::int, null::int, null::int, null::timestamptz
      union all
     select $1, (now() at time zone 'UTC')::date - 2, $2::int, $3::int, $4::int, $5::int, $6::int, now()`,
      [tenant.accountId, followers, blocks, first, returns, unfollows],
    )
    await database.query(`update official_account set created_at = now() - interval '9 days' where id = $1`, [
      tenant.accountId,
    ])
    await refreshFigures(tenant)
    expect(await statusOf(database, tenant)).toMatchObject(
      missing === null
        ? { status: 'ok', account: { missing } }
        : { status: 'degraded', reasons: ['deliveries_missing'], account: { missing } },
    )
  },
)

it('oa-audience fleet lists the worst account first, says what to do, and exits with 1 if one is broken', async () => {
  const { database: own, env } = await createTestDatabase()
  const fine = await addTenant(own, usable)
  expect(await runCommand(['fleet'], env)).toMatchObject({ status: 0 })
  const broken = await addTenant(own, usable)
  await own.query('update official_account set suspended = true where id = $1', [broken.accountId])
  const { status, stdout } = await runCommand(['fleet', '--json'], env)
  expect(status).toBe(1)
  expect(JSON.parse(stdout)).toMatchObject([
    { id: String(broken.accountId), status: 'broken', problems: [{ reason: 'suspended' }, {}] },
    { id: String(fine.accountId), status: 'quiet' },
  ])
  const text = (await runCommand(['fleet'], env)).stdout
  expect(text.split('\n')[1]).toMatch(
    new RegExp(`^${broken.accountId} .*broken.*LINE has suspended the account`),
  )
  expect(text).toContain('Ask LINE for the reason')
})

const setWatch = (text: string) => database.query(`update notification_watch set ${text}`)
const listed = async ({ accountId }: Tenant) =>
  (await listFleet(database, null)).find(({ id }) => id === accountId)?.status

it('a stored status is quiet until the first pass, and as new as its facts after each pass and each look at the account', async () => {
  const tenant = await addTenant(database, usable)
  await set(tenant, 'suspended = true')
  expect(await listed(tenant)).toBe('quiet')
  await setWatch(`passed_at = '-infinity'`)
  expect(await accountWatch(database)()).toBe(true)
  expect(await listed(tenant)).toBe('broken')
  await set(tenant, 'suspended = false')
  expect(await listed(tenant)).toBe('broken')
  await confirmStatus(database, tenant.accountId, Date.now())
  expect(await listed(tenant)).toBe('quiet')
})

it('a stored status has no series if no pass was completed for five minutes', async () => {
  const tenant = await addTenant(database)
  await set(tenant, 'suspended = true')
  await setWatch(`passed_at = '-infinity'`)
  expect(await accountWatch(database)()).toBe(true)
  const isListed = async () => (await listProblems(database)).some(({ id }) => id === tenant.accountId)
  expect(await isListed()).toBe(true)
  await setWatch(`completed_at = now() - interval '5 minutes'`)
  expect(await isListed()).toBe(false)
})

it('exports one series per account and problem as metrics', async () => {
  const broken = await addTenant(database, usable)
  await set(broken, 'suspended = true')
  const fine = await addTenant(database, usable)
  await onService((service) => service.deliver(fine, follow))
  const metrics = new Metrics(['line'])
  await database.query(`update notification_watch set passed_at = '-infinity'`)
  expect(await accountWatch(database)()).toBe(true)
  metrics.watchAccounts(() => listProblems(database))
  const text = await eventually(
    () => metrics.registry.metrics(),
    (exported) => exported.includes('oa_audience_account_problem{'),
  )
  const seriesOf = ({ accountId }: Tenant) =>
    text.split('\n').filter((line) => line.startsWith(`oa_audience_account_problem{account="${accountId}"`))
  expect(seriesOf(broken)).toEqual([
    `oa_audience_account_problem{account="${broken.accountId}",reason="suspended"} 3`,
    `oa_audience_account_problem{account="${broken.accountId}",reason="never_delivered"} 1`,
  ])
  expect(seriesOf(fine)).toEqual([])
  metrics.close()
})

it('shows a muted problem as muted, until it is unmuted or its mute ends', async () => {
  const { database, env } = await createTestDatabase()
  const { accountId } = await addTenant(database, { ...usable, channelSecret: ' ' })
  const id = String(accountId)
  const run = (...args: string[]) => runCommand(args, env)
  expect((await run('fleet')).status).toBe(1)
  const mute = ['accounts', 'mute', id, '--reason', 'the shop moves', '--until']
  const until = new Date(Date.now() + 80 * 86_400_000).toISOString()
  expect((await run(...mute, new Date(Date.now() + 91 * 86_400_000).toISOString())).stderr).toContain(
    'at most 90 days from now',
  )
  expect((await run(...mute, until)).stdout).toContain('muted')
  const sentence = `Muted until ${until}: the shop moves`
  const fleet = await run('fleet')
  expect([fleet.status, fleet.stdout]).toEqual([0, expect.stringContaining(sentence)])
  expect(JSON.parse((await run('doctor', '--json')).stdout)).toContainEqual(
    expect.objectContaining({
      check: `account ${id}`,
      severity: 'warning',
      message: expect.stringContaining(sentence),
    }),
  )
  await run('accounts', 'unmute', id)
  expect((await run('fleet')).status).toBe(1)
  await run(...mute, until)
  await database.query('update account_check set muted_until = now()')
  expect((await run('fleet')).status).toBe(1)
})

it('documents every reason below its status', () => {
  const operations = readFileSync(new URL('../../docs/operate/watch.md', import.meta.url), 'utf8')
  for (const status of ['broken', 'degraded', 'quiet']) {
    const [, , reasons = ''] =
      new RegExp(`^\\| \`${status}\` \\|([^|]*)\\|([^|]*)\\|`, 'm').exec(operations) ?? []
    const documented = [...reasons.matchAll(/`(\w+)`/g)].map(([, reason]) => reason)
    const known = Object.entries(REASONS).filter(([, its]) => its === status)
    expect(documented.sort(), status).toEqual(known.map(([reason]) => reason).sort())
  }
})
