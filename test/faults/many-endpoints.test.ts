/** Endpoints that fail, are silent or take no body delay neither others nor LINE, in bounded memory. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { measureDeliveries, measureIdle } from '../support/delivery-latency.ts'
import { startReceiver } from '../support/endpoints.ts'
import { acceptForTest } from '../support/http-server.ts'
import { MEASURED } from '../support/measured.ts'
import { NO_LIMITS, setUpProcess, startHealthy } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

/** Nothing listens there. */
const REFUSING_URL = 'http://127.0.0.1:9/'
/** The most that an account can have. */
const PER_ACCOUNT = 20

const addEndpoints = (database: TextDatabase, { accountId }: Tenant, url: string, count: number) =>
  database.query(
    `insert into endpoint (channel_oa_id, url, allow_private_network, status)
     select $1, $2, true, 'paused' from generate_series(1, $3::int)`,
    [accountId, url, count],
  )

async function addTenants(database: TextDatabase, count: number): Promise<Tenant[]> {
  const tenants: Tenant[] = []
  while (tenants.length < count) tenants.push(await addTenant(database))
  return tenants
}

async function deliver(serviceUrl: string, tenant: Tenant, text: string): Promise<void> {
  const response = await sendDelivery(serviceUrl, tenant, [textMessage(randomUserId(), text)])
  expect(response.status).toBe(200)
  await response.arrayBuffer()
}

/** Stores one delivery of each tenant for its paused endpoints, and the given number of copies. */
async function storeBacklog(
  { database, serviceUrl }: { database: TextDatabase; serviceUrl: string },
  tenants: Tenant[],
  { text, copies }: { text: string; copies: number },
): Promise<void> {
  for (const tenant of tenants) await deliver(serviceUrl, tenant, text)
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, created_at)
     select channel_oa_id, endpoint_id, event_keys, created_at from endpoint_delivery, generate_series(1, $1::int)`,
    [copies],
  )
}

const resumeAll = (database: TextDatabase) => database.query(`update endpoint set status = 'active'`)

/** Accepts connections and never answers. @param isReading takes the requests */
async function startSilent(isReading: boolean): Promise<string> {
  const port = await acceptForTest((socket) => void (isReading ? socket.resume() : socket.pause()))
  return `http://127.0.0.1:${port}/`
}

/** Milliseconds from each of LINE's requests to the endpoint's, sorted. */
async function measureForwarding(serviceUrl: string, tenant: Tenant, received: Array<{ body: string }>) {
  const latenciesMs: number[] = []
  for (let no = 0; no < 60; no += 1) {
    const text = `forwarded ${no} ${randomUserId()}`
    const startedAtMs = performance.now()
    await deliver(serviceUrl, tenant, text)
    await expect.poll(() => received.at(-1)?.body ?? '').toContain(text)
    latenciesMs.push(performance.now() - startedAtMs)
    await sleep(50)
  }
  return latenciesMs.sort((a, b) => a - b)
}

it(
  'sends to a healthy endpoint, and acknowledges LINE, beside 1,900 endpoints that refuse or say nothing with 190,000 due deliveries',
  MEASURED,
  async () => {
    const { database, service, tenant: healthy } = await setUpProcess()
    const tenants = await addTenants(database, 95)
    const other = await addTenant(database)
    const receiver = await startReceiver()
    const silentUrl = await startSilent(true)
    for (const [no, tenant] of tenants.entries())
      await addEndpoints(database, tenant, no % 2 === 0 ? silentUrl : REFUSING_URL, PER_ACCOUNT)
    await addEndpoints(database, healthy, receiver.url, 1)
    await storeBacklog({ database, serviceUrl: service.url }, tenants, { text: 'hello', copies: 99 })
    const idleMs = await measureIdle(service.url, other)
    await resumeAll(database)
    // In these seconds, each endpoint fails for the first time.
    const [failingMs, latenciesMs] = await Promise.all([
      measureDeliveries(service.url, other),
      measureForwarding(service.url, healthy, receiver.received),
    ])
    const busyMs = await measureDeliveries(service.url, other)
    const [medianMs, worstMs] = [latenciesMs[30] as number, latenciesMs.at(-1) as number]
    console.log(
      `forwarded: median ${medianMs.toFixed(0)} ms, worst ${worstMs.toFixed(0)} ms; LINE: p95 ${idleMs.toFixed(0)} ms idle, ${failingMs.toFixed(0)} ms in the first seconds, ${busyMs.toFixed(0)} ms later`,
    )
    expect(failingMs).toBeLessThan(10 * idleMs + 50)
    expect(medianMs).toBeLessThan(500)
    expect(worstMs).toBeLessThan(5_000)
    expect(busyMs).toBeLessThan(10 * idleMs + 50)
  },
)

/** Accepts requests, in a thread of its own. */
async function startAccepting(): Promise<string> {
  const worker = new Worker(ACCEPTING, { eval: true })
  onTestFinished(async () => {
    await worker.terminate()
  })
  return `http://127.0.0.1:${(await once(worker, 'message'))[0]}/`
}

const ACCEPTING = `
  const { parentPort } = require('node:worker_threads')
  const server = require('node:http').createServer((request, response) => {
    request.resume().on('end', () => response.end())
  }).listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))`

it(
  "acknowledges LINE's deliveries to others while 1,000 endpoints of 50 accounts receive a delivery each second",
  MEASURED,
  async () => {
    const { database, service, tenant: other } = await setUpProcess()
    const large = await addTenants(database, 50)
    const url = await startAccepting()
    for (const tenant of large) await addEndpoints(database, tenant, url, PER_ACCOUNT)
    await resumeAll(database)
    const idleMs = await measureIdle(service.url, other, 50)
    const deliveries: Array<Promise<void>> = []
    const deliverToAll = () =>
      deliveries.push(...large.map((tenant) => deliver(service.url, tenant, 'hello')))
    const timer = setInterval(deliverToAll, 1_000)
    const busyMs = await measureDeliveries(service.url, other, 50).finally(() => clearInterval(timer))
    await Promise.all(deliveries)
    console.log(`LINE: median ${idleMs.toFixed(0)} ms idle, ${busyMs.toFixed(0)} ms busy`)
    await expect.poll(() => database.query('select from endpoint_delivery')).toHaveLength(0)
    expect(busyMs).toBeLessThan(10 * idleMs + 50)
  },
)

it('exports the backlogs of 100 endpoints from one of two instances, and from the other one after a kill', async () => {
  const ports = [await freePort(), await freePort()] as const
  const { database, env, service } = await setUpProcess({ METRICS_PORT: String(ports[0]) })
  const second = await startHealthy({ ...NO_LIMITS, ...env, METRICS_PORT: String(ports[1]) })
  const tenants = await addTenants(database, 5)
  for (const tenant of tenants) await addEndpoints(database, tenant, REFUSING_URL, PER_ACCOUNT)
  await storeBacklog({ database, serviceUrl: service.url }, tenants, { text: 'hello', copies: 999 })
  const pendingIn = async (port: number) => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    const values = [...text.matchAll(/^oa_audience_endpoint_pending\{.*\} (\d+)$/gm)].map(([, value]) =>
      Number(value),
    )
    return { endpoints: values.length, deliveries: values.reduce((sum, value) => sum + value, 0) }
  }
  const counted = { endpoints: 100, deliveries: 50_000 }
  const none = { endpoints: 0, deliveries: 0 }
  await expect
    .poll(async () => [await pendingIn(ports[0]), await pendingIn(ports[1])])
    .toEqual([counted, none])
  service.child.kill('SIGKILL')
  await service.exited
  await expect.poll(() => pendingIn(ports[1])).toEqual(counted)
  expect(second.child.exitCode).toBeNull()
})

it('keeps its memory below 512 MiB beside 100 endpoints that take no body, with 20 deliveries of 1 MiB each', async () => {
  const { database, service, tenant: healthy } = await setUpProcess()
  const large = await addTenants(database, 5)
  const receiver = await startReceiver()
  const silentUrl = await startSilent(false)
  for (const tenant of large) await addEndpoints(database, tenant, silentUrl, PER_ACCOUNT)
  await addEndpoints(database, healthy, receiver.url, 1)
  const text = 'x'.repeat(1_000_000)
  await storeBacklog({ database, serviceUrl: service.url }, large, { text, copies: 19 })
  await resumeAll(database)
  const latenciesMs = await measureForwarding(service.url, healthy, receiver.received)
  // VmHWM is the largest resident size so far.
  const status = execFileSync('cat', [`/proc/${service.child.pid}/status`], { encoding: 'utf8' })
  const mebibytes = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1024
  const medianMs = latenciesMs[30] as number
  console.log(
    `at most ${mebibytes.toFixed(0)} MiB; forwarded to a healthy endpoint: median ${medianMs.toFixed(0)} ms`,
  )
  expect(mebibytes).toBeLessThan(512)
  expect(medianMs).toBeLessThan(500)
})
