/** The report of followers: docs/report.md defines its figures. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import type { Scope } from '../../src/accounts/scope.ts'
import { eraseUser } from '../../src/audience/erasure/erase.ts'
import type { AccountId, OrganizationId } from '../../src/ids.ts'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { type Grouping, readReport } from '../../src/watch/report.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { startApp } from '../support/service.ts'

const { database, env } = await createTestDatabase()
const service = await startApp(database)

const DAY_MS = 86_400_000
/** A day of LINE. @param days before today */
const dayBefore = (days: number) =>
  new Date(Date.now() + 9 * 3_600_000 - days * DAY_MS).toISOString().slice(0, 10)

async function count(): Promise<void> {
  await load(database, 'update account_check set count_due_at = now(), counted_at = null')
  while ((await refreshDueFigures(database)) > 0);
}

const reportOf = (
  tenant: Tenant,
  given: { from: string; to: string; by?: Grouping; organization?: OrganizationId | null },
) =>
  readReport(database, null, {
    ...{ by: 'total', organization: null, account: tenant.accountId as AccountId },
    ...given,
  })

const follow = (userId: string, daysAgo: number, isReturn = false) =>
  lineEvent('follow', userId, { timestamp: Date.now() - daysAgo * DAY_MS, follow: { isUnblocked: isReturn } })
const unfollow = (userId: string, daysAgo: number) =>
  lineEvent('unfollow', userId, { timestamp: Date.now() - daysAgo * DAY_MS })

const erase = ({ accountId, organizationId }: Tenant, userId: string) =>
  eraseUser(database, null, { accountId, organizationId } as Scope, userId, Date.now)

/** The statements of docs/report.md by the name of their figure. */
const DEFINITIONS = new Map(
  [
    ...readFileSync('docs/report.md', 'utf8').matchAll(
      /^\*\*(\w+)\*\*[^`]*(?:`[^`]+`[^`]*)*?```sql\n(.*?)```/gms,
    ),
  ].map(([, name = '', sql = '']) => [name, sql]),
)

async function defined(
  name: string,
  values: [account: bigint, from: string, to: string],
): Promise<number | null> {
  const literals = values.map((value) => (typeof value === 'string' ? `date '${value}'` : String(value)))
  const text = DEFINITIONS.get(name)?.replaceAll(/\$(\d)/g, (_, n) => literals[n - 1] ?? '') ?? ''
  const [row = {}] = await load(database, text)
  const [value = null] = Object.values(row)
  return value === null ? null : Number(value)
}

/** Hundreds of follows, returns and blocks of a few people, at random times of the last 40 days. */
async function addHistory(tenant: Tenant): Promise<void> {
  const people = Array.from({ length: 40 }, () => randomUserId())
  const events = Array.from({ length: 300 }, () => {
    const userId = people[Math.floor(Math.random() * people.length)] as string
    const daysAgo = Math.random() * 40
    return Math.random() < 0.4 ? unfollow(userId, daysAgo) : follow(userId, daysAgo, Math.random() < 0.3)
  })
  for (let at = 0; at < events.length; at += 50)
    expect((await service.deliver(tenant, events.slice(at, at + 50))).status).toBe(200)
}

it('each figure is what its SQL in the documentation computes from stored events, for any period', async () => {
  const tenant = await addTenant(database)
  await addHistory(tenant)
  await count()
  expect([...DEFINITIONS.keys()]).toEqual([
    'newFollowers',
    'returns',
    'blocks',
    'blockedWithin7Days',
    'followers',
  ])
  for (let i = 0; i < 12; i += 1) {
    const [first, last] = [Math.random() * 35, Math.random() * 35].map(Math.floor).sort((a, b) => b - a)
    const [from, to] = [dayBefore(first ?? 0), dayBefore(last ?? 0)]
    const { rows } = await reportOf(tenant, { from, to })
    for (const name of DEFINITIONS.keys())
      expect([name, from, to, rows[0]?.[name as 'blocks']]).toEqual([
        ...[name, from, to],
        await defined(name, [tenant.accountId, from, to]),
      ])
  }
})

it('the rows of days, weeks and months add up to the total, and so do accounts and organizations', async () => {
  const tenant = await addTenant(database)
  await addHistory(tenant)
  await count()
  const period = { from: dayBefore(33), to: dayBefore(1) }
  const [total] = (await reportOf(tenant, period)).rows
  for (const by of ['day', 'week', 'month', 'organization', 'account', 'source'] as const) {
    const { rows } = await reportOf(tenant, { ...period, by })
    for (const name of ['newFollowers', 'returns', 'blocks', 'net', 'blockedWithin7Days'] as const)
      expect([by, name, rows.reduce((sum, row) => sum + (row[name] ?? 0), 0)]).toEqual([
        by,
        name,
        total?.[name],
      ])
  }
  const days = (await reportOf(tenant, { ...period, by: 'day' })).rows
  expect(days.map(({ day }) => day)).toEqual(Array.from({ length: 33 }, (_, i) => dayBefore(33 - i)))
  expect(days.at(-1)?.previous).toEqual({ ...days.at(-2), day: undefined, previous: undefined })
})

it('what was not counted is null, before the account was added and of LINE', async () => {
  const tenant = await addTenant(database)
  await service.deliver(tenant, [follow(randomUserId(), 0)])
  await count()
  const { completeFrom, rows } = await reportOf(tenant, { from: dayBefore(1), to: dayBefore(0), by: 'day' })
  expect(completeFrom).toBe(dayBefore(0))
  expect(rows).toMatchObject([
    { newFollowers: null, net: null, followers: null, lineFollowers: null, previous: null },
    {
      newFollowers: 1,
      net: 1,
      blocks: 0,
      followers: 1,
      blockedWithin7Days: 0,
      lineFollowers: null,
      previous: null,
    },
  ])
})

it('a late event and a retried one appear in their day with the next count, and an erasure changes no total', async () => {
  const tenant = await addTenant(database)
  const [first, second] = [randomUserId(), randomUserId()]
  await service.deliver(tenant, [follow(first, 20), unfollow(first, 18)])
  await count()
  const period = { from: dayBefore(21), to: dayBefore(19) }
  const rowOf = async () => (await reportOf(tenant, period)).rows[0]
  expect(await rowOf()).toMatchObject({ newFollowers: 1, blockedWithin7Days: 1 })
  await service.deliver(tenant, [follow(second, 20)])
  await count()
  expect(await rowOf()).toMatchObject({ newFollowers: 2, blockedWithin7Days: 1 })
  await erase(tenant, first)
  await count()
  expect(await rowOf()).toMatchObject({ newFollowers: 2 })
})

it('a figure never decreases when retention has deleted its events', async () => {
  const tenant = await addTenant(database)
  await service.deliver(tenant, [follow(randomUserId(), 30), follow(randomUserId(), 2)])
  await count()
  await load(
    database,
    `delete from event where channel_oa_id = $1 and occurred_at < now() - interval '10 days'`,
    [tenant.accountId],
  )
  await load(database, `update event set received_at = now() - interval '3 days' where channel_oa_id = $1`, [
    tenant.accountId,
  ])
  await count()
  const [row] = (await reportOf(tenant, { from: dayBefore(31), to: dayBefore(0) })).rows
  expect(row).toMatchObject({ newFollowers: 2 })
})

it('sources count the events of their people, and the last row counts all others', async () => {
  const tenant = await addTenant(database)
  const people = Array.from({ length: 4 }, () => randomUserId()) as [string, string, string, string]
  await service.deliver(tenant, [...people.map((userId) => follow(userId, 3)), unfollow(people[0], 2)])
  await load(
    database,
    `update audience_member set source = case user_id when $2 then 'qr-shop' when $3 then 'qr-shop' when $4 then '=ad' end,
            first_followed_at = followed_at where channel_oa_id = $1`,
    [tenant.accountId, ...people.slice(0, 3)],
  )
  await load(
    database,
    `update audience_member set first_followed_at = now() - interval '3 days' where channel_oa_id = $1`,
    [tenant.accountId],
  )
  // The days of an account that has its events since before them are counted again, and the others never decrease.
  await load(database, `update event set received_at = now() - interval '6 days' where channel_oa_id = $1`, [
    tenant.accountId,
  ])
  await count()
  const period = { from: dayBefore(5), to: dayBefore(0), by: 'source' } as const
  expect((await reportOf(tenant, period)).rows).toMatchObject([
    {
      source: 'qr-shop',
      newFollowers: 2,
      blocks: 1,
      blockedWithin7Days: 1,
      followers: 1,
      stillFollowing: 1,
      active: 2,
    },
    { source: '=ad', newFollowers: 1, blocks: 0, followers: 1, stillFollowing: 1 },
    { source: null, newFollowers: 1, blocks: 0, followers: null },
  ])
  await erase(tenant, people[2])
  await count()
  expect((await reportOf(tenant, period)).rows.map(({ source }) => source)).toEqual(['qr-shop', null])
})

it('an operator sees the report of the own organizations alone', async () => {
  const [own, other] = [await addTenant(database), await addTenant(database)]
  for (const tenant of [own, other]) await service.deliver(tenant, [follow(randomUserId(), 1)])
  await count()
  const query = {
    from: dayBefore(2),
    to: dayBefore(0),
    by: 'account',
    organization: null,
    account: null,
  } as const
  const { rows } = await readReport(database, [own.organizationId as OrganizationId], query)
  expect(rows).toMatchObject([{ accountId: own.accountId, newFollowers: 1 }])
  const others = { ...query, organization: other.organizationId as OrganizationId }
  await expect(readReport(database, [own.organizationId as OrganizationId], others)).rejects.toMatchObject({
    noun: 'organization',
  })
})

it('the command prints a table, CSV with a byte order mark, and JSON, and refuses what is not a period', async () => {
  const tenant = await addTenant(database)
  await load(database, `update official_account set name = '=cmd, "x"' where id = $1`, [tenant.accountId])
  await service.deliver(tenant, [follow(randomUserId(), 1)])
  await count()
  const period = ['--from', dayBefore(1), '--to', dayBefore(1), '--account', String(tenant.accountId)]
  const report = (...args: string[]) => runCommand(['report', ...period, ...args], env)
  const table = await report('--by', 'account')
  expect(table.stdout).toMatch(/^accountId +name +newFollowers .*\n.*cmd.* 1 .*\nComplete since/)
  const csv = await report('--by', 'account', '--format', 'csv')
  expect(csv.stdout).toMatch(/^\uFEFF"accountId","name","newFollowers",.*\r\n\d+,"'=cmd, ""x""",1,0,0,1,/)
  expect(JSON.parse((await report('--json')).stdout)).toMatchObject({
    from: dayBefore(1),
    rows: [{ newFollowers: 1, previous: null }],
  })
  for (const args of [
    ['--from', '2026-02-30', '--to', '2026-03-01'],
    ['--from', '2026-03-02', '--to', '2026-03-01'],
    ['--from', '2020-03-02', '--to', '2026-03-01'],
  ]) {
    const { status, stderr } = await runCommand(['report', ...args], env)
    expect([status, stderr]).toEqual([1, expect.stringMatching(/^oa-audience: --(from|to) must .*\n$/)])
  }
})

it('reads more accounts than one statement does, and adds them up', async () => {
  const { database: own } = await createTestDatabase()
  const { organizationId } = await addTenant(own)
  await load(
    own,
    `with account as (insert into official_account (organization_id, name) select $1, 'OA ' || i from generate_series(1, 2100) i returning id),
          day as (insert into account_day (channel_oa_id, day, first_follows, returns, unfollows, blocked_within_7_days, following)
                  select id, date '2026-03-01' + age, 2, 1, 1, 0, 10 from account, generate_series(0, 1) age)
     insert into source_day select id, '2026-03-02', case when id % 2 = 0 then 'qr-shop' else 'ad' end, 1, 0, 0, 0, 1, 1 from account`,
    [organizationId],
  )
  const query = { from: '2026-03-02', to: '2026-03-02', organization: null, account: null }
  const rowsBy = async (by: Grouping) => (await readReport(own, null, { ...query, by })).rows
  const total = {
    newFollowers: 4200,
    returns: 2100,
    blocks: 2100,
    net: 4200,
    followers: 21_000,
    blockedWithin7Days: 0,
  }
  expect(await rowsBy('total')).toMatchObject([{ ...total, previous: { ...total } }])
  expect(await rowsBy('day')).toMatchObject([{ ...total, day: '2026-03-02' }])
  expect(await rowsBy('organization')).toMatchObject([total])
  expect(await rowsBy('account')).toHaveLength(2_101)
  expect(await rowsBy('source')).toMatchObject([
    { source: 'ad', newFollowers: 1_050, stillFollowing: 1_050 },
    { source: 'qr-shop', newFollowers: 1_050 },
    { source: null, newFollowers: 2_100 },
  ])
})
