/** The service as a process on an external PostgreSQL: start, outages, signals, metrics. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'
import {
  becomesWell,
  eventually,
  setUpProcess,
  spawnService,
  startHealthy,
  temporaryDirectory,
  writeTemporaryFile,
} from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'
import { startProxy } from '../support/tcp-proxy.ts'

const statusOf = (url: string, path: string, init?: RequestInit) =>
  fetch(url + path, init).then(({ status }) => status)

function deliver(url: string, tenant: Tenant, events: unknown[]): Promise<number> {
  return sendDelivery(url, tenant, events).then(({ status }) => status)
}

it('answers 503 or 500 before its database responds and during outages, migrates, and answers 200 otherwise', async () => {
  const { database, connection } = await createTestDatabase('template0')
  const { proxy, url } = await startProxy(connection)
  const service = await spawnService({ DATABASE_URL: url })
  expect(await statusOf(service.url, '/api')).toBe(200)
  expect(await statusOf(service.url, '/api/health')).toBe(503)
  expect(await statusOf(service.url, '/api/line/1', { method: 'POST', body: '{}' })).toBe(503)
  const headers = { 'x-client-id': 'a', 'x-client-secret': 'b', 'x-api-key': 'c' }
  expect(await statusOf(service.url, '/api/audience', { headers })).toBe(500)
  proxy.open()
  await becomesWell(service.url)
  await expect
    .poll(() => service.output())
    .toSatisfy(
      (output) =>
        /the database at \S+ cannot be used: .+ The service tries again/.test(output) &&
        output.includes('migrated: 0001-'),
    )
  const tenant = await addTenant(database)
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

it('starts in a namespace with a Kubernetes Service "console", and says how to turn its variable off', async () => {
  const service = await startHealthy({ DATABASE_URL: 'none', CONSOLE_PORT: 'tcp://10.96.0.10:80' })
  expect(service.output()).toMatch(/CONSOLE_PORT is ignored, .+ Set enableServiceLinks: false in the pod/)
})

it('after SIGTERM answers health with 503, then the accepted requests, and exits with 0', async () => {
  const { database, tenant, service } = await setUpProcess()
  await deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  const release = await holdTransaction(
    database,
    'select from audience_member where user_id = $1 for update',
    ['U1'],
  )
  const accepted = deliver(service.url, tenant, [lineEvent('follow', 'U1')])
  await waitForBlocked(database, 1)
  // A terminal signals both npm and the service, and npm passes its signal on.
  service.child.kill('SIGTERM')
  service.child.kill('SIGTERM')
  await expect.poll(() => statusOf(service.url, '/api/health')).toBe(503)
  await release()
  expect(await accepted).toBe(200)
  expect(await service.exited).toEqual({ code: 0, signal: null })
})

it('finishes an erasure that another instance left pending, marks changes, and serves metrics on a port of their own', async () => {
  const { database, env } = await createTestDatabase()
  const tenant = await addTenant(database)
  await database.query(
    `with added as (
       insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload)
       values ($1, 'line', 'message', gen_random_uuid(), now(), 'U0', '{}') returning id
     )
     insert into pending_erasure (channel_oa_id, organization_id, member_id, user_id, last_event_id)
     select $1, $2, 7, 'U0', id from added`,
    [tenant.accountId, tenant.organizationId],
  )
  const port = await freePort()
  const service = await startHealthy({ ...env, METRICS_PORT: String(port) })
  await expect.poll(() => database.query('select from pending_erasure')).toHaveLength(0)
  expect(await database.query('select user_id, payload from event')).toEqual([
    { user_id: null, payload: null },
  ])
  const events = [lineEvent('follow', 'U1'), { ...lineEvent('follow', 'U2'), timestamp: 'never' }]
  for (const _ of [1, 2]) await deliver(service.url, tenant, events)
  await statusOf(service.url, '/api/mbox/callback/unguessable', { method: 'POST' })
  await expect
    .poll(() => database.query('select from change_mark where change <= change_limit()'))
    .toHaveLength(1)
  const metrics = await eventually(
    () => fetch(`http://127.0.0.1:${port}/metrics`).then((response) => response.text()),
    (text) => /oa_audience_database_clock_skew_seconds -?[0-4](\.|\n)/.test(text),
  )
  for (const line of [
    'oa_audience_requests_total{method="POST",route="/api/mbox/callback/:oaHash",status=',
    'oa_audience_events_total{source="line",outcome="accepted"} 2',
    'oa_audience_events_total{source="line",outcome="duplicate"} 2',
    'oa_audience_events_total{source="line",outcome="unapplied"} 1',
    'oa_audience_database_state{state="up"} 1',
  ])
    expect(metrics).toContain(line)
  expect(metrics).not.toContain('unguessable')
  expect(await statusOf(service.url, '/metrics')).toBe(404)
})

it('exits with 1 if its shutdown fails, and stops its server nevertheless', async () => {
  const dataDir = temporaryDirectory()
  const broken = writeTemporaryFile(
    'broken.mjs',
    `const { race } = Promise
     Promise.race = (promises) => {
       const { stack } = new Error()
       if (stack.includes('delivery-counts') && !stack.includes('every')) throw new Error('a fault')
       return race.call(Promise, promises)
     }`,
  )
  const service = await startHealthy({ DATA_DIR: dataDir, NODE_OPTIONS: `--import ${broken}` })
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 1, signal: null })
  expect(service.output()).toContain('the shutdown failed')
  expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false)
})

it('exits with 0 within 10 s of SIGTERM while its database is silent', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const { proxy, url } = await startProxy(connection)
  proxy.open()
  const service = await startHealthy({ DATABASE_URL: url })
  // A refused delivery is counted in memory first and written later.
  await sendDelivery(service.url, { ...tenant, channelSecret: 'another secret' }, [])
  proxy.silence()
  const pending = fetch(`${service.url}/api/audience`, { headers: tenant.headers }).catch(() => null)
  expect((await fetch(`${service.url}/api/health`)).status).toBe(503)
  const signalledAtMs = performance.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - signalledAtMs).toBeLessThan(10_000)
  await pending
})
