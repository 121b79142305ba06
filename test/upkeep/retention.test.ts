/** Retention: partitions of the event table, and rows that are deleted when they are old. */
import { expect, it } from 'vitest'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { load, loadMembers } from '../support/load.ts'
import { maintain, partitionsOf } from '../support/maintenance.ts'
import { setUpService } from '../support/service.ts'

const DAY_MS = 86_400_000

const partitions = (database: PostgresDatabase) => partitionsOf(database, 'event')

const partitionOf = (monday: Date) => `event_${monday.toISOString().slice(0, 10).replaceAll('-', '')}`

/** The Monday, in UTC, of the week that contains the day so many days ago. */
function mondayBefore(daysAgo: number): Date {
  const day = new Date(Date.now() - daysAgo * DAY_MS)
  day.setUTCHours(0, 0, 0, 0)
  day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7))
  return day
}

async function addPartition(database: PostgresDatabase, monday: Date): Promise<void> {
  const end = new Date(monday.getTime() + 7 * DAY_MS)
  await load(
    database,
    `create table ${partitionOf(monday)} partition of event
        for values from ('${monday.toISOString()}') to ('${end.toISOString()}')`,
  )
}

const setAge = (database: PostgresDatabase, table: string, days: number) =>
  load(database, `update ${table} set received_at = now() - interval '${days} days'`)

it('the partitions of events are created once for this week and five weeks ahead, by several instances at the same time', async () => {
  const { database, service, tenant } = await setUpService()
  await Promise.all([1, 2, 3].map(() => maintain(database)))
  const expected = Array.from({ length: 6 }, (_, week) => partitionOf(mondayBefore(-7 * week)))
  expect(await partitions(database)).toEqual([...expected, 'event_default'])
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  const stored = await load(database, 'select tableoid::regclass::text as name from event')
  expect(stored).toEqual([{ name: partitionOf(mondayBefore(0)) }])
})

it('the partitions of events are dropped when every day of their week is older than the retention', async () => {
  const { database } = await setUpService()
  for (const days of [104, 97, 90, 83]) await addPartition(database, mondayBefore(days))
  await maintain(database)
  const kept = await partitions(database)
  expect(kept).not.toContain(partitionOf(mondayBefore(104)))
  expect(kept).toContain(partitionOf(mondayBefore(90)))
  expect(kept).toContain(partitionOf(mondayBefore(83)))
  await maintain(database, { retentionDays: 0 })
  expect(await partitions(database)).toEqual(kept)
})

it('the partitions of events are not created for a week whose events are in the default partition, and deliveries go on', async () => {
  const { database, service, tenant } = await setUpService()
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await maintain(database)
  expect(await partitions(database)).not.toContain(partitionOf(mondayBefore(0)))
  const { json } = await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  expect(json).toEqual({ accepted: 1, duplicates: 0 })
})

const partitionOfDay = (daysAgo: number) =>
  `tracking_event_${new Date(Date.now() - daysAgo * DAY_MS).toISOString().slice(0, 10).replaceAll('-', '')}`

it('tracking events have daily partitions, which are dropped after a retention of their own', async () => {
  const { database, service, tenant } = await setUpService()
  await maintain(database)
  const event = { type: 'page', userId: 'U1', messageId: 'm-1' }
  await service.track(tenant, [event])
  const stored = await load(database, 'select tableoid::regclass::text as name from tracking_event')
  expect(stored).toEqual([{ name: partitionOfDay(0) }])
  for (const days of [9, 7]) {
    const [day, next] = [days, days - 1].map((ago) =>
      new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10),
    )
    await load(
      database,
      `create table ${partitionOfDay(days)} partition of tracking_event for values from ('${day}+00') to ('${next}+00')`,
    )
  }
  await maintain(database)
  const names = await partitionsOf(database, 'tracking_event')
  expect(names).toHaveLength(17)
  expect(names).toContain(partitionOfDay(7))
  expect(names).not.toContain(partitionOfDay(9))
})

it('tracking events leave what they add to a member, and their keys, when they are deleted', async () => {
  const { database, service, tenant } = await setUpService()
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  const event = { type: 'page', userId: 'U1', messageId: 'm-1' }
  await service.track(tenant, [event])
  await setAge(database, 'tracking_event', 8)
  await maintain(database)
  expect(await load(database, 'select from tracking_event')).toHaveLength(0)
  expect((await service.track(tenant, [event])).json).toMatchObject({ accepted: 0, duplicates: 1 })
  expect(await service.member(tenant, 'U1')).toMatchObject({ eventCount: 2 })
})

it('maintenance keeps the key of an event longer than the event, so a late duplicate is still recognised', async () => {
  const { database, service, tenant } = await setUpService()
  const event = textMessage(randomUserId(), 'long ago')
  await service.deliver(tenant, [event])
  await setAge(database, 'event', 91)
  await setAge(database, 'event_key', 399)
  await maintain(database)
  expect(await load(database, 'select from event')).toHaveLength(0)
  expect((await service.deliver(tenant, [event])).json).toEqual({ accepted: 0, duplicates: 1 })
  await setAge(database, 'event_key', 401)
  await maintain(database)
  expect(await load(database, 'select from event_key')).toHaveLength(0)
})

it('maintenance deletes edits, unsent messages, tombstones and counts of deliveries when they are old', async () => {
  const { database, tenant } = await setUpService()
  await loadMembers(database, tenant, 1, { id: '1' })
  const { accountId, organizationId } = tenant
  const ages = (keptDays: number) => `unnest(array[${keptDays - 2}, ${keptDays + 2}]) as days`
  const time = 'now() - make_interval(days => days)'
  await load(
    database,
    `insert into unsent_message (channel_oa_id, message_id, unsent_at)
     select ${accountId}, 'm' || days, ${time} from ${ages(400)};
     insert into erased_member (channel_oa_id, organization_id, id, deleted_at)
     select ${accountId}, ${organizationId}, days, ${time} from ${ages(400)};
     insert into member_edit (channel_oa_id, member_id, edited_at, fields)
     select ${accountId}, 1, ${time}, '{tags}' from ${ages(90)};
     insert into delivery_hour (channel_oa_id, source, hour)
     select ${accountId}, 'line', ${time} from ${ages(35)};
     insert into account_day (channel_oa_id, day)
     select ${accountId}, ${time} from ${ages(1096)};
     insert into source_day select ${accountId}, ${time}, 'qr-shop', 1, 0, 0, 0, 1, 1 from ${ages(1096)}`,
  )
  await maintain(database)
  for (const table of ['unsent_message', 'erased_member', 'member_edit', 'delivery_hour']) {
    expect(await load(database, `select from ${table}`), table).toHaveLength(1)
  }
  for (const table of ['account_day', 'source_day'])
    expect(await load(database, `select from ${table} where day < current_date - 10`), table).toHaveLength(1)
})

it('maintenance deletes old tracked activity of people who never became members', async () => {
  const { database, service, tenant } = await setUpService()
  const [member, gone, active, late] = Array.from({ length: 4 }, randomUserId) as [
    string,
    string,
    string,
    string,
  ]
  const track = (userId: string) => service.track(tenant, [{ type: 'page', userId }])
  const follow = (userId: string) => service.deliver(tenant, [lineEvent('follow', userId)])
  const eventCount = async (userId: string) => (await service.member(tenant, userId))?.eventCount
  await follow(member)
  for (const userId of [member, gone, active, late]) await track(userId)
  await load(
    database,
    `update tracked_activity set received_at = now() - interval '440 days', active_month = current_date - 440`,
  )
  // The month that began 420 days ago ended less than 400 days ago.
  await load(database, 'update tracked_activity set active_month = current_date - 420 where user_id = $1', [
    late,
  ])
  await track(active)
  await maintain(database)
  // What belongs to a member is found once in 400 days, and not by each run.
  const due = 'select from tracked_activity where active_month < current_date - 431'
  expect(await load(database, due)).toEqual([])
  for (const userId of [gone, active, late]) await follow(userId)
  expect(await eventCount(member)).toBe(2)
  expect(await eventCount(gone)).toBe(1)
  expect(await eventCount(active)).toBe(3)
  expect(await eventCount(late)).toBe(2)
})
