/** The service as a process on an external PostgreSQL: start, outages, signals, metrics. */
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import type { Connection } from '../src/postgres/embedded/server.ts'
import { freePort } from '../tools/prove/service.ts'
import { lineEvent } from '../tools/simulator/events.ts'
import { TcpProxy } from '../tools/simulator/tcp-proxy.ts'
import type { TextDatabase } from '../tools/text-database.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from './support/database.ts'
import {
  becomesWell,
  eventually,
  runProgramAsync,
  spawnService,
  temporaryDirectory,
} from './support/process.ts'
import { signedDelivery } from './support/service.ts'

async function createDatabase(
  template?: string,
): Promise<{ database: TextDatabase; connection: Connection }> {
  const created = await createTestDatabase(template)
  onTestFinished(() => created.database.close())
  return created
}

/** A proxy before a database of the test PostgreSQL, and the address of the database behind it. */
async function proxyTo({ user, database }: Connection): Promise<{ proxy: TcpProxy; url: string }> {
  const { host, port } = inject('postgres')
  const proxy = new TcpProxy({ path: `${host}/.s.PGSQL.${port}` })
  onTestFinished(() => proxy.close())
  return { proxy, url: `postgres://${user}@127.0.0.1:${await proxy.listen()}/${database}` }
}

const statusOf = (url: string, path: string, init?: RequestInit) =>
  fetch(url + path, init).then(({ status }) => status)

function deliver(url: string, tenant: Tenant, events: unknown[]): Promise<number> {
  const { path, init } = signedDelivery(tenant, events)
  return statusOf(url, path, init)
}

describe('before its database answers, the service', () => {
  it('listens and answers 503 or 500', async () => {
    const { connection } = await createDatabase()
    const service = await spawnService({ DATABASE_URL: (await proxyTo(connection)).url })
    expect(await statusOf(service.url, '/api')).toBe(200)
    expect(await statusOf(service.url, '/api/health')).toBe(503)
    expect(await statusOf(service.url, '/api/line/1', { method: 'POST', body: '{}' })).toBe(503)
    const headers = { 'x-client-id': 'a', 'x-client-secret': 'b', 'x-api-key': 'c' }
    expect(await statusOf(service.url, '/api/audience', { headers })).toBe(500)
  })

  it('logs the outage, and migrates without a restart when the database answers', async () => {
    const { connection } = await createDatabase('template0')
    const { proxy, url } = await proxyTo(connection)
    const service = await spawnService({ DATABASE_URL: url })
    const logs = (text: string) =>
      eventually(
        async () => service.output(),
        (output) => output.includes(text),
      )
    await logs('the database does not answer')
    proxy.open()
    await becomesWell(service.url)
    await logs('migrated: 0001-')
  })
})

it('answers 500 and 503 during each outage of its database, and 200 after it', async () => {
  const { database, connection } = await createDatabase()
  const tenant = await addTenant(database)
  const { proxy, url } = await proxyTo(connection)
  proxy.open()
  const service = await spawnService({ DATABASE_URL: url })
  await becomesWell(service.url)
  const statuses = async () => [
    await statusOf(service.url, '/api/health'),
    await statusOf(service.url, '/api/audience', { headers: tenant.headers }),
    await deliver(service.url, tenant, [lineEvent('follow', 'U1')]),
  ]
  for (let outage = 0; outage < 3; outage += 1) {
    expect(await statuses()).toEqual([200, 200, 200])
    proxy.shut()
    expect(await statuses()).toEqual([503, 500, 503])
    proxy.open()
  }
  expect(await statuses()).toEqual([200, 200, 200])
  expect(service.output()).not.toMatch(/unhandled|uncaught/i)
})

/** Locks the row of a member, so that deliveries about that person wait in the database. */
async function lockMember(database: TextDatabase, userId: string): Promise<{ release: () => Promise<void> }> {
  let unlock = () => {}
  const unlocked = new Promise<void>((resolve) => {
    unlock = resolve
  })
  let isLocked = () => {}
  const locked = new Promise<void>((resolve) => {
    isLocked = resolve
  })
  const transaction = database.transaction(async (session) => {
    await session.query('select from audience_member where user_id = $1 for update', [userId])
    isLocked()
    await unlocked
  })
  await locked
  return {
    release: () => {
      unlock()
      return transaction
    },
  }
}

const lockWaits = (database: TextDatabase) =>
  eventually(
    () =>
      database.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      ),
    (sessions) => sessions.length > 0,
  )

it('after SIGTERM answers health with 503, then the accepted requests, and exits with 0', async () => {
  const { database, connection } = await createDatabase()
  const tenant = await addTenant(database)
  const service = await spawnService({ DATABASE_URL: urlOf(connection) })
  await becomesWell(service.url)
  await deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  const { release } = await lockMember(database, 'U1')
  const accepted = deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  await lockWaits(database)
  // A terminal signals both npm and the service, and npm passes its signal on.
  service.child.kill('SIGTERM')
  service.child.kill('SIGTERM')
  await eventually(
    () => statusOf(service.url, '/api/health'),
    (status) => status === 503,
  )
  await release()
  expect(await accepted).toBe(200)
  expect(await service.exited).toEqual({ code: 0, signal: null })
})

it('applies each migration once when five instances start together', async () => {
  const { connection } = await createDatabase('template0')
  const env = { DATABASE_URL: urlOf(connection) }
  const services = await Promise.all(Array.from({ length: 5 }, () => spawnService(env)))
  await Promise.all(services.map(({ url }) => becomesWell(url)))
  const applied = services.flatMap(({ output }) => output().match(/migrated: \d+/g) ?? [])
  expect(new Set(applied).size).toBe(applied.length)
  expect(applied.length).toBeGreaterThanOrEqual(2)
})

describe('the metrics', () => {
  it('are served on a port of their own, with route patterns instead of paths', async () => {
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

  it('count events, flushes and verifications', async () => {
    const { database, connection } = await createDatabase()
    const tenant = await addTenant(database)
    const port = await freePort()
    const service = await spawnService({ DATABASE_URL: urlOf(connection), METRICS_PORT: String(port) })
    await becomesWell(service.url)
    const events = [lineEvent('follow', 'U1'), { ...lineEvent('follow', 'U2'), timestamp: 'never' }]
    await deliver(service.url, tenant, events)
    await deliver(service.url, tenant, events)
    await database.query(`alter table audience_member add constraint refused check (user_id <> 'Urefused')`)
    await deliver(service.url, tenant, [lineEvent('follow', 'Urefused')])
    await statusOf(service.url, '/api/line-oa/verify', { method: 'POST', headers: tenant.headers })
    const metrics = await fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text())
    for (const line of [
      'oa_audience_events_total{source="line",outcome="accepted"} 3',
      'oa_audience_events_total{source="line",outcome="duplicate"} 2',
      'oa_audience_events_total{source="line",outcome="unapplied"} 2',
      'oa_audience_flush_events_count 2',
      'oa_audience_queue_events{source="line"} 0',
      'oa_audience_profiles_due 0',
      'oa_audience_verifications_total{outcome="refused"} 1',
      'oa_audience_database_sessions{share="clients",state="waiting"} 0',
      'oa_audience_database_state{state="up"} 1',
    ]) {
      expect(metrics).toContain(line)
    }
  })
})

it('marks the changes that have ended, for delta feeds, and compares the clocks', async () => {
  const { connection, database } = await createDatabase()
  const port = await freePort()
  const service = await spawnService({ DATABASE_URL: urlOf(connection), METRICS_PORT: String(port) })
  await becomesWell(service.url)
  const marks = () => database.query('select from change_mark where change <= change_limit()')
  await eventually(marks, ({ length }) => length === 1)
  const metrics = () => fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text())
  await eventually(metrics, (text) => /oa_audience_database_clock_skew_seconds -?[0-4](\.|\n)/.test(text))
})

it('finishes an erasure at its start that another instance left pending', async () => {
  const { database, connection } = await createDatabase()
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
    (pending) => pending.length === 0,
  )
  expect(await database.query('select user_id, payload from event')).toEqual([
    { user_id: null, payload: null },
  ])
})

describe('on a port that is already in use', () => {
  async function occupyPort(): Promise<number> {
    const server = createServer()
    onTestFinished(() => void server.close())
    return new Promise((resolve) =>
      server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
    )
  }

  it.each([
    ['without a database', () => ({ DATABASE_URL: 'none' })],
    ['with an embedded database', () => ({ DATA_DIR: temporaryDirectory() })],
  ])('the service exits with 1 and names the port (%s)', async (_, env) => {
    const port = await occupyPort()
    const { status, stdout, stderr } = await runProgramAsync(['serve'], { ...env(), PORT: String(port) })
    expect(status).toBe(1)
    expect(stderr).toBe(
      `oa-audience: PORT ${port} on 127.0.0.1 is already in use. Stop the other process or set PORT.\n`,
    )
    // No background work starts, and fails, after the end.
    expect(stdout).not.toMatch(/maintenance|does not answer/)
  })
})

it('starts without a database if DATABASE_URL is none', async () => {
  const service = await spawnService({ DATABASE_URL: 'none' })
  expect(await fetch(`${service.url}/api/health`).then((response) => response.json())).toEqual({
    status: 'ok',
    database: 'none',
  })
})
