/** How large payloads are stored, on a server that was built with lz4. */
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { findDebianPostgres, ReplicatedPostgres } from '../../tools/simulator/replicated-postgres.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant } from '../support/database.ts'
import { temporaryDirectory } from '../support/process.ts'
import { startApp } from '../support/service.ts'

/** Characters: too many for one row without compression. */
const LONG = 5_000

const tools = findDebianPostgres()
if (tools === null) {
  console.warn('\n!!! no PostgreSQL of Debian is installed: COMPRESSION WITH LZ4 IS NOT TESTED.\n')
}

it.runIf(tools !== null)('a large payload is compressed with lz4, and comes back as it was', async () => {
  const options = { standbys: 0, settings: '' }
  const cluster = await ReplicatedPostgres.start(tools ?? '', temporaryDirectory(), options)
  onTestFinished(() => cluster.stop())
  const database = new TextDatabase(cluster.url, () => undefined)
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
