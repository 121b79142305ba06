/** GET /api/health and its metric report what the database can do. */
import { expect, inject, it } from 'vitest'
import { Metrics } from '../src/observability/metrics.ts'
import { lineEvent } from '../tools/simulator/events.ts'
import { TextDatabase } from '../tools/text-database.ts'
import { addTenant, createTestDatabase, openDatabase } from './support/database.ts'
import { startApp } from './support/service.ts'

it('reports a read-only database as degraded with status 200, and as up when it can store again', async () => {
  const { database: direct, connection } = await createTestDatabase()
  const tenant = await addTenant(direct)
  // The setting is changed from another database, which stays writable.
  const server = new TextDatabase(inject('postgres'), () => undefined)
  const set = (setting: string) =>
    server.session((session) => session.query(`alter database ${connection.database} ${setting}`))
  await set('set default_transaction_read_only = on')
  const database = openDatabase(connection)
  const metrics = new Metrics(['line'])
  metrics.watchDatabase(database)
  const service = await startApp(database, { metrics })

  const degraded = await service.call('GET', '/api/health')
  expect(degraded.status).toBe(200)
  expect(degraded.json).toEqual({ status: 'degraded', database: 'read-only' })
  expect(await metrics.registry.metrics()).toContain('oa_audience_database_state{state="read-only"} 1')
  expect((await service.call('GET', '/api/audience', { headers: tenant.headers })).status).toBe(200)
  expect((await service.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(503)

  // The connections that were opened meanwhile stay read-only, so the health check must not keep its own.
  await set('reset default_transaction_read_only')
  expect((await service.call('GET', '/api/health')).json).toEqual({ status: 'ok', database: 'up' })
  const text = await metrics.registry.metrics()
  expect(text).toContain('oa_audience_database_state{state="read-only"} 0')
  expect(text).toContain('oa_audience_database_state{state="up"} 1')
  expect((await service.deliver(tenant, [lineEvent('follow', 'U1')])).status).toBe(200)
  metrics.close()
  await Promise.all([database.close(), direct.close(), server.close()])
})

it('opens one connection for 50 concurrent health checks', async () => {
  const { database: direct, connection } = await createTestDatabase()
  const database = openDatabase(connection)
  const service = await startApp(database)
  const checks = await Promise.all(Array.from({ length: 50 }, () => service.call('GET', '/api/health')))
  expect(new Set(checks.map(({ status }) => status))).toEqual(new Set([200]))
  const sessions = await direct.query(
    `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
  )
  expect(sessions).toHaveLength(1)
})
