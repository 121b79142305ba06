/** The service as a process on a PostgreSQL of somebody else's: it waits for it, survives it, and ends politely. */

import { type AddressInfo, createServer } from 'node:net'
import { expect, inject, it, onTestFinished } from 'vitest'
import { signLine } from '../src/intake/line/signature.ts'
import type { Connection } from '../src/postgres/embedded/server.ts'
import { Secret } from '../src/secret.ts'
import { freePort } from '../tools/prove/service.ts'
import { lineBody, lineEvent } from '../tools/simulator/events.ts'
import { TcpProxy } from '../tools/simulator/tcp-proxy.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from './support/database.ts'
import {
  becomesWell,
  eventually,
  runCommand,
  runCommandAsync,
  spawnService,
  temporaryDirectory,
} from './support/process.ts'

/** A door to the test PostgreSQL, and the address of a database behind it. */
async function doorTo({ user, database }: Connection): Promise<{ door: TcpProxy; url: string }> {
  const { host, port } = inject('postgres')
  const door = new TcpProxy({ path: `${host}/.s.PGSQL.${port}` })
  onTestFinished(() => door.close())
  return { door, url: `postgres://${user}@127.0.0.1:${await door.listen()}/${database}` }
}

const statusOf = (url: string, path: string, init?: RequestInit) =>
  fetch(url + path, init).then(({ status }) => status)

function deliver(url: string, tenant: Tenant, events: unknown[]): Promise<number> {
  const body = lineBody(tenant.botUserId, events)
  const headers = { 'x-line-signature': signLine(body, new Secret(tenant.channelSecret)) }
  return statusOf(url, `/api/line/${tenant.accountId}`, { method: 'POST', headers, body })
}

it('starts before its database answers, says so, and needs no restart when it does', async () => {
  const { database, connection } = await createTestDatabase('template0')
  const { door, url } = await doorTo(connection)
  const service = await spawnService({ DATABASE_URL: url })
  expect(await statusOf(service.url, '/api')).toBe(200)
  expect(await statusOf(service.url, '/api/health')).toBe(503)
  expect(await statusOf(service.url, '/api/line/1', { method: 'POST', body: '{}' })).toBe(503)
  const headers = { 'x-client-id': 'a', 'x-client-secret': 'b', 'x-api-key': 'c' }
  expect(await statusOf(service.url, '/api/audience', { headers })).toBe(500)
  await eventually(
    async () => service.output(),
    (output) => output.includes('the database does not answer'),
  )
  door.open()
  await becomesWell(service.url)
  await eventually(
    async () => service.output(),
    (output) => output.includes('migrated: 0001-'),
  )
  expect(await statusOf(service.url, '/api/audience', { headers })).toBe(401)
  await database.close()
})

it('turns to 500 and 503 while its database is away, and comes back by itself', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const { door, url } = await doorTo(connection)
  door.open()
  const service = await spawnService({ DATABASE_URL: url })
  const protectedStatus = () => statusOf(service.url, '/api/audience', { headers: tenant.headers })
  await becomesWell(service.url)
  expect(await protectedStatus()).toBe(200)
  for (let round = 0; round < 3; round += 1) {
    door.shut()
    expect(await statusOf(service.url, '/api/health')).toBe(503)
    expect(await protectedStatus()).toBe(500)
    expect(await deliver(service.url, tenant, [lineEvent('follow', 'U1')])).toBe(503)
    door.open()
    expect(await statusOf(service.url, '/api/health')).toBe(200)
    expect(await protectedStatus()).toBe(200)
    expect(await deliver(service.url, tenant, [lineEvent('follow', 'U1')])).toBe(200)
  }
  expect(service.output()).not.toMatch(/unhandled|uncaught/i)
  await database.close()
})

it('answers what it accepted after SIGTERM, with health at 503, and exits with 0', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const service = await spawnService({ DATABASE_URL: urlOf(connection) })
  await becomesWell(service.url)
  // Somebody holds the member's row, so the delivery waits in the database while the signal comes.
  await deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  let release = () => {}
  const held = database.transaction(async (transaction) => {
    await transaction.query(`select from audience_member where user_id = 'U1' for update`)
    await new Promise<void>((resolve) => {
      release = resolve
    })
  })
  await new Promise((resolve) => setTimeout(resolve, 100))
  const accepted = deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  await new Promise((resolve) => setTimeout(resolve, 100))
  const signalledAt = Date.now()
  // Twice, as from a terminal and from npm, which passes on what it gets.
  service.child.kill('SIGTERM')
  setTimeout(() => service.child.kill('SIGTERM'), 20)
  await eventually(
    () => statusOf(service.url, '/api/health'),
    (status) => status === 503,
    900,
  )
  release()
  await held
  expect(await accepted).toBe(200)
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(Date.now() - signalledAt).toBeLessThan(4000)
  await database.close()
})

it('exits with 0 within 10 s of SIGTERM even while its database says nothing at all', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const { door, url } = await doorTo(connection)
  door.open()
  const service = await spawnService({ DATABASE_URL: url })
  await becomesWell(service.url)
  // Counted, and not written yet.
  await deliver(service.url, { ...tenant, channelSecret: 'another secret' }, [])
  door.silence()
  const pending = statusOf(service.url, '/api/audience', { headers: tenant.headers }).catch(() => 0)
  const askedAt = Date.now()
  expect(await statusOf(service.url, '/api/health')).toBe(503)
  expect(Date.now() - askedAt).toBeLessThan(3000)
  const signalledAt = Date.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(Date.now() - signalledAt).toBeLessThan(10_000)
  await pending
  await database.close()
})

it('migrates once when five instances start at the same moment', async () => {
  const { database, connection } = await createTestDatabase('template0')
  const services = await Promise.all(
    Array.from({ length: 5 }, () => spawnService({ DATABASE_URL: urlOf(connection) })),
  )
  for (const { url } of services) await becomesWell(url)
  const applied = services.flatMap(({ output }) => output().match(/migrated: \d+/g) ?? [])
  expect(new Set(applied).size).toBe(applied.length)
  expect(applied.length).toBeGreaterThanOrEqual(2)
  await database.close()
})

it('refuses a schema that is newer than it is, with one clear line', async () => {
  const { database, connection } = await createTestDatabase()
  await database.query(`insert into schema_migration (version, name) values (9999, 'from the future')`)
  const { status, stderr } = runCommand(['serve'], { DATABASE_URL: urlOf(connection) })
  expect(status).toBe(1)
  expect(stderr).toMatch(
    /^oa-audience: the database schema is at version 9999, newer than this program knows .+\n$/,
  )
  await database.close()
})

it('serves metrics on a port of their own, without a word about callers', async () => {
  const port = await freePort()
  const service = await spawnService({ DATABASE_URL: 'none', METRICS_PORT: String(port) })
  await statusOf(service.url, '/api')
  await statusOf(service.url, '/api/mbox/callback/unguessable', { method: 'POST' })
  const metrics = await fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text())
  expect(metrics).toContain('oa_audience_requests_total{method="GET",route="/api",status="200"} 1')
  expect(metrics).toContain('route="/api/mbox/callback/:oaHash",status="503"')
  expect(metrics).not.toContain('unguessable')
  expect(await statusOf(service.url, '/metrics')).toBe(404)
})

it('shows what intake does in its metrics', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const port = await freePort()
  const service = await spawnService({ DATABASE_URL: urlOf(connection), METRICS_PORT: String(port) })
  await becomesWell(service.url)
  const event = lineEvent('follow', 'U1')
  const unusable = { ...lineEvent('follow', 'U2'), timestamp: 'never' }
  await deliver(service.url, tenant, [event, unusable])
  await deliver(service.url, tenant, [event, unusable])
  await database.query(`alter table audience_member add constraint refused check (user_id <> 'Urefused')`)
  await deliver(service.url, tenant, [lineEvent('follow', 'Urefused')])
  await statusOf(service.url, '/api/line-oa/verify', { method: 'POST', headers: tenant.headers })
  const metrics = await fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text())
  for (const line of [
    'oa_audience_events_total{source="line",outcome="accepted"} 3',
    'oa_audience_events_total{source="line",outcome="duplicate"} 2',
    'oa_audience_events_total{source="line",outcome="unapplied"} 2',
    'oa_audience_flush_events_count 2',
    'oa_audience_queue_events 0',
    'oa_audience_profiles_due 0',
    'oa_audience_verifications_total{outcome="refused"} 1',
    'oa_audience_database_sessions{state="waiting"} 0',
  ]) {
    expect(metrics).toContain(line)
  }
  await database.close()
})

it('finishes at its start the erasure that another one left unfinished', async () => {
  const { database, connection } = await createTestDatabase()
  const { accountId, organizationId } = await addTenant(database)
  const [event] = await database.query<{ id: bigint }>(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload)
     values ($1, 'line', 'message', gen_random_uuid(), now(), 'U1', '{}') returning id`,
    [accountId],
  )
  await database.query(
    `insert into pending_erasure (channel_oa_id, organization_id, member_id, user_id, last_event_id)
     values ($1, $2, 7, 'U1', $3)`,
    [accountId, organizationId, event?.id],
  )
  await spawnService({ DATABASE_URL: urlOf(connection) })
  await eventually(
    () => database.query('select from pending_erasure'),
    (rests) => rests.length === 0,
  )
  expect(await database.query('select user_id, payload from event')).toEqual([
    { user_id: null, payload: null },
  ])
  await database.close()
})

it('says which port is taken', async () => {
  const taken = createServer()
  const port = await new Promise<number>((resolve) =>
    taken.listen(0, '127.0.0.1', () => resolve((taken.address() as AddressInfo).port)),
  )
  onTestFinished(() => {
    taken.close()
  })
  for (const env of [{ DATABASE_URL: 'none' }, { DATA_DIR: temporaryDirectory() }]) {
    const { status, stdout, stderr } = await runCommandAsync(['serve'], { ...env, PORT: String(port) })
    expect(status).toBe(1)
    expect(stderr).toBe(
      `oa-audience: PORT ${port} on 127.0.0.1 is in use: stop what listens there, or set PORT\n`,
    )
    // Nothing begins, and fails, once it has ended.
    expect(stdout).not.toMatch(/maintenance|does not answer/)
  }
})

it('runs without a database when told so', async () => {
  const service = await spawnService({ DATABASE_URL: 'none' })
  expect(await fetch(`${service.url}/api/health`).then((response) => response.json())).toEqual({
    status: 'ok',
    database: 'none',
  })
})
