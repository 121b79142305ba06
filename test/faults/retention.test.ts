/** What a run of retention reads when tables are large, and every page has rows of each age, as after years of reused space. */
import { expect, it, onTestFinished } from 'vitest'
import { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { maintain, partitionsOf } from '../support/maintenance.ts'
import { setUpService } from '../support/service.ts'

/** The levels of the B-trees grow, and the planner's samples differ. */
const FURTHER_BLOCKS = 30
/** Days, of the oldest row. Each table keeps its rows at least for 30. */
const OLDEST_DAYS = 29
const TABLES =
  /^(event_key_\w+|member_edit|unsent_message|erased_member|tracked_activity|change_mark|delivery_hour|account_day|endpoint_delivery)$/

/** Rows of random ages, so that no page has rows of one age. Tracked activity has the age at which it is reviewed. */
async function store(database: PostgresDatabase, { accountId, organizationId }: Tenant, rows: number) {
  const age = `now() - random() * ${OLDEST_DAYS} * interval '1 day'`
  const numbers = `generate_series(1, ${rows}) i`
  await load(
    database,
    `insert into event_key (channel_oa_id, key, received_at)
     select ${accountId}, gen_random_uuid(), ${age} from ${numbers};
     insert into event_key_default (channel_oa_id, key, received_at)
     select ${accountId}, (lpad(to_hex(i), 12, '0') || substr(md5(i::text), 1, 20))::uuid, ${age} from ${numbers};
     insert into member_edit (channel_oa_id, member_id, fields, edited_at) select ${accountId}, 1, '{tags}', ${age} from ${numbers};
     insert into unsent_message (channel_oa_id, message_id, unsent_at) select ${accountId}, i::text, ${age} from ${numbers};
     insert into erased_member (channel_oa_id, organization_id, id, deleted_at)
     select ${accountId}, ${organizationId}, i, ${age} from ${numbers};
     insert into tracked_activity (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at, received_at)
     select ${accountId}, 'T' || i, 1, now(), now(), ${age} from ${numbers};
     insert into change_mark (marked_at, change) select ${age}, i from ${numbers};
     insert into delivery_hour (channel_oa_id, hour, source) select i, ${age}, 'line' from ${numbers};
     insert into account_day (channel_oa_id, day) select ${accountId}, current_date - 399 + i from generate_series(1, 399) i;
     insert into endpoint (channel_oa_id, url, status) values (${accountId}, 'https://example.com/', 'paused');
     insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, created_at, failed_at)
     select ${accountId}, id, '{}', ${age}, case when i % 2 = 0 then now() end from endpoint, ${numbers}`,
  )
}

/** Blocks of tables and indexes that a run reads, from memory or disk. */
async function blocksOfRun(database: PostgresDatabase) {
  await load(database, 'select pg_stat_reset()')
  await maintain(database)
  const rows = await load<{ name: string; blocks: number }>(
    database,
    `select relname as name,
            (heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::int as blocks
       from pg_statio_user_tables`,
  )
  return new Map(rows.filter(({ name }) => TABLES.test(name)).map(({ name, blocks }) => [name, blocks]))
}

async function measure(rows: number) {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  await maintain(database)
  await loadMembers(database, tenant, 1, { id: '1' })
  await store(database, tenant, rows)
  // Statistics of the sessions that stored the rows have to be complete before they are reset.
  await database.close()
  const later = new PostgresDatabase(connection, () => undefined)
  onTestFinished(() => later.close())
  const unanalyzed = await blocksOfRun(later)
  await load(later, 'vacuum analyze')
  return { unanalyzed, analyzed: await blocksOfRun(later) }
}

it('retention reads as much of 100,000 rows in each table as of 10,000 if nothing is due, with and without statistics', async () => {
  const few = await measure(10_000)
  const many = await measure(100_000)
  for (const statistics of ['unanalyzed', 'analyzed'] as const) {
    for (const [name, blocks] of many[statistics]) {
      const expected = (few[statistics].get(name) ?? 0) + FURTHER_BLOCKS
      expect(blocks, `${name}, ${statistics}`).toBeLessThanOrEqual(expected)
    }
  }
})

it('partitions are left for the next time while a dump reads them, and deliveries go on meanwhile', async () => {
  const { database, service, tenant } = await setUpService()
  const old = 'event_20200106'
  await load(
    database,
    `create table ${old} partition of event for values from ('2020-01-06Z') to ('2020-01-13Z')`,
  )
  const endDump = await holdTransaction(
    database,
    `lock table event, event_default, ${old} in access share mode`,
  )
  let isDone = false
  const maintained = maintain(database).finally(() => {
    isDone = true
  })
  while (!isDone) {
    const answers = [1, 2, 3].map(() => service.deliver(tenant, [lineEvent('follow', randomUserId())]))
    for (const { status } of await Promise.all(answers)) expect(status).toBe(200)
  }
  await maintained
  expect(await partitionsOf(database, 'event')).toContain(old)
  await endDump()
  await maintain(database)
  expect(await partitionsOf(database, 'event')).not.toContain(old)
})
