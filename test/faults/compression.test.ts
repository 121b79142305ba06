/** How large payloads are stored, on a server that was built with lz4. */
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant } from '../support/database.ts'
import { hasDebianPostgres, startCluster } from '../support/debian-postgres.ts'
import { startApp } from '../support/service.ts'

/** Characters: too many for one row without compression. */
const LONG = 5_000

const test = it.runIf(hasDebianPostgres('compression with lz4 is'))

test('a large payload is compressed with lz4, and comes back as it was', async () => {
  const { url } = await startCluster()
  const database = new TextDatabase(url, () => undefined)
  onTestFinished(() => database.close())
  await migrate(database)
  database.markReady()
  const tenant = await addTenant(database)
  const service = await startApp(database)
  const text = 'two cups of coffee '.repeat(LONG / 19)
  const event = lineEvent('message', randomUserId(), { message: { type: 'text', id: '1', text } })
  expect((await service.deliver(tenant, [event])).status).toBe(200)
  const stored = await database.query(
    `select pg_column_compression(payload) as compression, payload::json -> 'message' ->> 'text' as text from event`,
  )
  expect(stored).toEqual([{ compression: 'lz4', text }])
})
