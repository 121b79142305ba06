/** Query plans: each session plans a statement once, perhaps while tables are small, and keeps the plan while they grow. */
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../src/postgres/pool/postgres-database.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { load } from './support/load.ts'
import { startApp } from './support/service.ts'

it('deliveries and lists scan no table sequentially, even when statistics say that all tables are empty', async () => {
  const { database, connection } = await createTestDatabase()
  await load(database, 'vacuum analyze')
  const service = await startApp(database)
  const tenant = await addTenant(database)
  for (let i = 0; i < 20; i += 1) {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId), textMessage(userId, 'hello')])
    await service.track(tenant, [{ type: 'page', userId, messageId: userId }])
    await service.member(tenant, userId)
  }
  await service.members(tenant)
  await service.app.close()
  // A session reports its statistics when it ends.
  await database.close()
  const later = new PostgresDatabase(connection, () => undefined)
  const scanned = await load(
    later,
    `select relname from pg_stat_user_tables
      where seq_scan > 0 and relname ~ '^(event_key\\w*|event_\\d+|audience_member|tracked_activity|erased_person)$'`,
  )
  await later.close()
  expect(scanned).toEqual([])
})
