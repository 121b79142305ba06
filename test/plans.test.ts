/** Plans are made once in each session, perhaps while tables are small: they must be good when the tables are not. */
import { expect, it } from 'vitest'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { lineEvent, randomUserId, textMessage } from '../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from './support/database.ts'
import { startApp } from './support/service.ts'

it('use indexes though statistics say that every table is empty', async () => {
  const { database, connection } = await createTestDatabase()
  await database.session((session) => session.query('vacuum analyze'))
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
  // A session tells its statistics when it ends.
  await database.close()
  const later = new PostgresDatabase(connection, () => undefined)
  const scanned = await later.session((session) =>
    session.query<{ relname: string }>(
      `select relname from pg_stat_user_tables
        where seq_scan > 0 and relname ~ '^(event_key|event_\\d+|audience_member|tracked_activity|erased_person)$'`,
    ),
  )
  await later.close()
  expect(scanned).toEqual([])
})
