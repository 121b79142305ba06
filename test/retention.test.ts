/** What is stored does not grow without end, and deduplication outlives what is stored. */
import { expect, it } from 'vitest'
import { runMaintenance } from '../src/maintenance/maintenance.ts'
import type { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { setUpTest, startAppForTest } from './support/service.ts'

const KEEP = { retentionDays: 90, deduplicationDays: 400 }
const DAY_MS = 86_400_000

async function partitions(database: PostgresDatabase): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'event'::regclass order by name`,
  )
  return rows.map(({ name }) => name)
}

const nameOf = (monday: Date) => `event_${monday.toISOString().slice(0, 10).replaceAll('-', '')}`

/** The Monday of the week, in UTC, so many days ago. */
function mondayBefore(daysAgo: number): Date {
  const day = new Date(Date.now() - daysAgo * DAY_MS)
  day.setUTCHours(0, 0, 0, 0)
  day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7))
  return day
}

async function addWeek(database: PostgresDatabase, monday: Date): Promise<void> {
  const end = new Date(monday.getTime() + 7 * DAY_MS)
  await database.query(
    `create table ${nameOf(monday)} partition of event for values from ('${monday.toISOString()}') to ('${end.toISOString()}')`,
  )
}

it('makes this week and the next five ahead, once, also when several instances do it at once', async () => {
  const { database } = await createTestDatabase()
  await Promise.all([1, 2, 3].map(() => database.session((session) => runMaintenance(session, KEEP))))
  const expected = Array.from({ length: 6 }, (_, week) => nameOf(mondayBefore(-7 * week)))
  expect(await partitions(database)).toEqual([...expected, 'event_default'])
  const service = await startAppForTest(database)
  const tenant = await addTenant(database)
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  const [stored] = await database.query<{ name: string }>(
    'select tableoid::regclass::text as name from event',
  )
  expect(stored?.name).toBe(nameOf(mondayBefore(0)))
  await database.close()
})

it('drops weeks that are older than the retention, and none that still has a day to keep', async () => {
  const { database } = await createTestDatabase()
  for (const days of [104, 97, 90, 83]) await addWeek(database, mondayBefore(days))
  await database.session((session) => runMaintenance(session, KEEP))
  const kept = await partitions(database)
  expect(kept).not.toContain(nameOf(mondayBefore(104)))
  expect(kept).toContain(nameOf(mondayBefore(90)))
  expect(kept).toContain(nameOf(mondayBefore(83)))
  await database.session((session) => runMaintenance(session, { ...KEEP, retentionDays: 0 }))
  expect(await partitions(database)).toEqual(kept)
  await database.close()
})

it('recognises an event that comes again after its stored copy was dropped, until its key is forgotten, too', async () => {
  const { database, service, tenant } = await setUpTest()
  const userId = randomUserId()
  const event = textMessage(userId, 'long ago')
  await service.deliver(tenant, [event])
  await database.query(`update event set received_at = now() - interval '91 days'`)
  await database.query(`update event_key set received_at = now() - interval '399 days'`)
  await database.session((session) => runMaintenance(session, KEEP))
  expect(await database.query('select from event')).toHaveLength(0)
  expect((await service.deliver(tenant, [event])).json).toEqual({ accepted: 0, duplicates: 1 })
  await database.query(`update event_key set received_at = now() - interval '401 days'`)
  await database.session((session) => runMaintenance(session, KEEP))
  expect(await database.query('select from event_key')).toHaveLength(0)
  await database.close()
})

it('forgets edits with the events, and messages taken back, erased members and refusals when nobody asks for them', async () => {
  const { database } = await createTestDatabase()
  const { accountId, organizationId } = await addTenant(database)
  const age = (days: number) => `now() - interval '${days} days'`
  for (const [table, columns, values, keptDays] of [
    ['unsent_message', 'message_id, unsent_at', (days: number) => `'m${days}', ${age(days)}`, 400],
    [
      'erased_member',
      'organization_id, id, deleted_at',
      (days: number) => `${organizationId}, ${days}, ${age(days)}`,
      400,
    ],
    ['member_edit', 'member_id, edited_at, fields', (days: number) => `1, ${age(days)}, '{tags}'`, 90],
    [
      'refused_delivery',
      'source, day, count, last_at',
      (days: number) => `'line', (${age(days)})::date, 1, now()`,
      30,
    ],
  ] as const) {
    if (table === 'member_edit') {
      await database.query(
        `insert into audience_member (id, channel_oa_id, organization_id, user_id) values (1, $1, $2, 'U1')`,
        [accountId, organizationId],
      )
    }
    for (const days of [keptDays - 2, keptDays + 2]) {
      await database.query(
        `insert into ${table} (channel_oa_id, ${columns}) values (${accountId}, ${values(days)})`,
      )
    }
    await database.session((session) => runMaintenance(session, KEEP))
    expect(await database.query(`select from ${table}`), table).toHaveLength(1)
  }
  await database.close()
})

it('forgets the tracked activity of who never became a member, keeps that of members and of who is active', async () => {
  const { database, service, tenant } = await setUpTest()
  const [member, gone, active] = [randomUserId(), randomUserId(), randomUserId()]
  const track = (userId: string) => service.track(tenant, [{ type: 'page', userId }])
  const follow = (userId: string) => service.deliver(tenant, [lineEvent('follow', userId)])
  await follow(member)
  for (const userId of [member, gone, active]) await track(userId)
  await database.query(`update tracked_activity set received_at = now() - interval '401 days'`)
  await track(active)
  await database.session((session) => runMaintenance(session, KEEP))
  for (const userId of [gone, active]) await follow(userId)
  expect((await service.member(tenant, member))?.eventCount).toBe(2)
  expect((await service.member(tenant, gone))?.eventCount).toBe(1)
  expect((await service.member(tenant, active))?.eventCount).toBe(3)
  await database.close()
})

it('leaves tables that a dump holds for next time, and holds nobody up meanwhile', async () => {
  const { database, service, tenant } = await setUpTest()
  await addWeek(database, mondayBefore(104))
  const old = nameOf(mondayBefore(104))
  await database.session(async (dump) => {
    await dump.query('begin')
    await dump.query(`lock table event, event_default, ${old} in access share mode`)
    const deliver = () => service.deliver(tenant, [lineEvent('follow', randomUserId())])
    const answers = [deliver()]
    await database.session(async (session) => {
      const done = runMaintenance(session, KEEP)
      for (let i = 0; i < 20; i += 1) {
        answers.push(deliver())
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
      await done
    })
    for (const { status } of await Promise.all(answers)) expect(status).toBe(200)
    expect(await partitions(database)).toContain(old)
    await dump.query('rollback')
  })
  await database.session((session) => runMaintenance(session, KEEP))
  expect(await partitions(database)).not.toContain(old)
  await database.close()
})

it('goes on where events of this week stand in the default partition already', async () => {
  const { database, service, tenant } = await setUpTest()
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await database.session((session) => runMaintenance(session, KEEP))
  expect(await partitions(database)).not.toContain(nameOf(mondayBefore(0)))
  expect((await service.deliver(tenant, [lineEvent('follow', randomUserId())])).json).toEqual({
    accepted: 1,
    duplicates: 0,
  })
  await database.close()
})
