/** The partitions of event keys: a duplicate is found wherever its key is, and keys stay DEDUPLICATION_DAYS after their receipt. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { maintain, partitionsOf } from '../support/maintenance.ts'
import { runs } from '../support/runs.ts'
import { setUpService, startApp } from '../support/service.ts'

const DAY_MS = 86_400_000
const YEAR_9999_MS = 253_402_300_799_999

/** The first millisecond, in UTC, of the month so many months from now. */
function monthStart(monthsAhead: number): number {
  const now = new Date()
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + monthsAhead)
}

const partitionOf = (ms: number) => `event_key_${new Date(ms).toISOString().slice(0, 10).replaceAll('-', '')}`
const boundOf = (ms: number) => ms.toString(16).padStart(12, '0').padEnd(32, '0')
const eventAt = (timestamp: number) => lineEvent('follow', randomUserId(), { timestamp })

const partitions = (database: PostgresDatabase) => partitionsOf(database, 'event_key')

async function partitionsOfKeys(database: PostgresDatabase): Promise<string[]> {
  const rows = await load<{ name: string }>(
    database,
    'select tableoid::regclass::text as name from event_key order by key',
  )
  return rows.map(({ name }) => name)
}

/** As maintenance created it in that month. */
async function addMonth(database: PostgresDatabase, monthsAhead: number): Promise<string> {
  const name = partitionOf(monthStart(monthsAhead))
  await load(
    database,
    `create table ${name} partition of event_key
        for values from ('${boundOf(monthStart(monthsAhead))}') to ('${boundOf(monthStart(monthsAhead + 1))}')`,
  )
  return name
}

it('a duplicate is found for every time that an event claims, before and after its month gets a partition (property)', async () => {
  const { database, service, tenant } = await setUpService()
  const boundaries = [0, 1, 2, 3].flatMap((month) => [monthStart(month) - 1, monthStart(month)])
  const time = fc.oneof(fc.integer({ min: 0, max: YEAR_9999_MS }), fc.constantFrom(...boundaries, Date.now()))
  const sent: unknown[] = []
  const deliver = async (times: number[]) => {
    const events = times.map(eventAt)
    const { json } = await service.deliver(tenant, events)
    expect(json).toEqual({ accepted: events.length, duplicates: 0 })
    sent.push(...events)
  }
  const expectDuplicates = async () =>
    expect((await service.deliver(tenant, sent)).json).toEqual({ accepted: 0, duplicates: sent.length })
  const property = fc.asyncProperty(fc.array(time, { minLength: 1, maxLength: 8 }), deliver)
  await fc.assert(property, { numRuns: runs(10), endOnFailure: true })
  await deliver(boundaries)
  await expectDuplicates()
  await maintain(database)
  await expectDuplicates()
  await fc.assert(property, { numRuns: runs(10), endOnFailure: true })
  await deliver(boundaries)
  await expectDuplicates()
})

it('a flush searches the partition of its own keys and no other', async () => {
  const { database, connection } = await createTestDatabase()
  await maintain(database)
  const service = await startApp(database)
  const tenant = await addTenant(database)
  // After five executions, PostgreSQL keeps a plan for all keys.
  for (let i = 0; i < 20; i += 1) await service.deliver(tenant, [eventAt(Date.now()), eventAt(Date.now())])
  await service.app.close()
  // A session reports its statistics when it ends.
  await database.close()
  const later = new PostgresDatabase(connection, () => undefined)
  const searched = await load(
    later,
    `select relname as name from pg_stat_user_tables
      where relname ~ '^event_key_\\d' and idx_scan > 0 order by relname`,
  )
  await later.close()
  expect(searched).toEqual([{ name: partitionOf(monthStart(0)) }])
})

it('the partitions of event keys are created for this month and two ahead, also if the default partition has keys of months ahead', async () => {
  const { database, service, tenant } = await setUpService()
  await service.deliver(tenant, [eventAt(0), eventAt(monthStart(1)), eventAt(monthStart(2) - 1)])
  await Promise.all([1, 2, 3].map(() => maintain(database)))
  const months = [0, 1, 2].map((ahead) => partitionOf(monthStart(ahead)))
  expect(await partitions(database)).toEqual([...months, 'event_key_default', 'event_key_hashed'])
  expect(await partitionsOfKeys(database)).toEqual(['event_key_default', months[1], months[1]])
  const constraints = await load(
    database,
    `select conname from pg_constraint where contype = 'c' and conrelid = 'event_key_default'::regclass`,
  )
  expect(constraints).toEqual([])
})

it('the partitions of event keys are not created for a month that has begun while its keys are in the default partition', async () => {
  const { database, service, tenant } = await setUpService()
  const event = eventAt(Date.now())
  await service.deliver(tenant, [event])
  await maintain(database)
  expect(await partitions(database)).not.toContain(partitionOf(monthStart(0)))
  expect((await service.deliver(tenant, [event, eventAt(Date.now())])).json).toEqual({
    accepted: 1,
    duplicates: 1,
  })
})

it('the partitions of event keys are completed by the next run if one was interrupted while it moved keys', async () => {
  const { database, service, tenant } = await setUpService()
  const events = [eventAt(monthStart(1)), eventAt(monthStart(1) + DAY_MS)]
  await service.deliver(tenant, events)
  const name = partitionOf(monthStart(1))
  const [from, to] = [boundOf(monthStart(1)), boundOf(monthStart(2))]
  await load(
    database,
    `create table ${name} (like event_key including all);
     alter table event_key_default add constraint ${name}_fence check (key < '${from}' or key >= '${to}') not valid;
     with moved as (delete from event_key_default where key = (select key from event_key_default order by key limit 1)
                    returning *) insert into ${name} select * from moved`,
  )
  const refused = await service.deliver(tenant, [events[0]])
  expect(refused.status).toBeGreaterThanOrEqual(500)
  await maintain(database)
  expect((await service.deliver(tenant, events)).json).toEqual({ accepted: 0, duplicates: 2 })
})

it('the partitions of event keys are created the next time if a dump reads the default partition, and deliveries go on meanwhile', async () => {
  const { database, service, tenant } = await setUpService()
  const endDump = await holdTransaction(database, 'lock table event_key_default in access share mode')
  await maintain(database)
  expect(await partitions(database)).toEqual(['event_key_default', 'event_key_hashed'])
  const { json } = await service.deliver(tenant, [eventAt(monthStart(1))])
  expect(json).toEqual({ accepted: 1, duplicates: 0 })
  await endDump()
  await maintain(database)
  expect(await partitions(database)).toHaveLength(5)
})

it('the partitions of event keys are dropped DEDUPLICATION_DAYS after their month, without the keys that were received later', async () => {
  const { database, service, tenant } = await setUpService()
  const [old, recent] = [await addMonth(database, -15), await addMonth(database, -13)]
  const events = [1, 2].map((days) => eventAt(monthStart(-15) + days * DAY_MS))
  await service.deliver(tenant, events)
  await service.deliver(tenant, [eventAt(monthStart(-13))])
  await load(
    database,
    `update ${old} set received_at = now() - interval '401 days' where key = (select key from ${old} order by key limit 1)`,
  )
  await maintain(database)
  expect(await partitions(database)).not.toContain(old)
  expect(await partitionsOfKeys(database)).toEqual(['event_key_default', recent])
  expect((await service.deliver(tenant, [events[1]])).json).toEqual({ accepted: 0, duplicates: 1 })
  expect((await service.deliver(tenant, [events[0]])).json).toEqual({ accepted: 1, duplicates: 0 })
  await load(database, `update event_key_default set received_at = now() - interval '401 days'`)
  await maintain(database)
  expect(await partitionsOfKeys(database)).toEqual([recent])
})
