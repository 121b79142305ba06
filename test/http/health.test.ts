/** GET /api/health and its metric report what the database can do. */
import { expect, inject, it } from 'vitest'
import { Metrics } from '../../src/observability/metrics.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, createTestDatabase, openDatabase } from '../support/database.ts'
import { startApp } from '../support/service.ts'

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

it('reports a database that cannot store as degraded until a delivery is stored', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const watched = openDatabase(connection)
  const metrics = new Metrics(['line'])
  metrics.watchDatabase(watched)
  const service = await startApp(watched, { metrics })
  const follow = async () => (await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status
  const health = async () => {
    const { status, json } = await service.call('GET', '/api/health')
    return [status, json]
  }
  expect(await follow()).toBe(200)
  // As PostgreSQL reports a full disk.
  await database.query(`create function refuse() returns trigger language plpgsql as $$
    begin raise exception 'could not extend file' using errcode = '53100'; end $$`)
  await database.query(`create trigger refuse before insert on event for each row execute function refuse()`)
  expect(await follow()).toBe(503)
  expect(await health()).toEqual([200, { status: 'degraded', database: 'failing' }])
  expect(await metrics.registry.metrics()).toContain('oa_audience_database_state{state="failing"} 1')
  expect((await service.call('GET', '/api/audience', { headers: tenant.headers })).status).toBe(200)
  await database.query('drop trigger refuse on event')
  expect((await health())[1]).toMatchObject({ status: 'degraded' })
  expect(await follow()).toBe(200)
  expect(await health()).toEqual([200, { status: 'ok', database: 'up' }])
  metrics.close()
})

it('stays ok if only the rows of one account are locked', async () => {
  const { database } = await createTestDatabase()
  const tenant = await addTenant(database)
  const service = await startApp(database)
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  await database.session(async (session) => {
    await session.query('begin')
    await session.query('select from audience_member for update')
    expect((await service.deliver(tenant, [lineEvent('unfollow', 'U1')])).status).toBe(503)
    await session.query('rollback')
  })
  expect((await service.call('GET', '/api/health')).json).toEqual({ status: 'ok', database: 'up' })
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
