/** Failover without loss: a primary and two standbys, of which one must have each commit, and two instances of the service. */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, openDatabase, type Tenant } from '../support/database.ts'
import { hasDebianPostgres, startCluster } from '../support/debian-postgres.ts'
import { FailoverLoad } from '../support/failover-load.ts'
import { serveForTest } from '../support/http-server.ts'
import { NO_LIMITS, runProgramAsync, type ServiceProcess, startHealthy } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const test = it.runIf(hasDebianPostgres('failover is'))

/** The field is read every ten seconds. */
async function readHealth({ url }: ServiceProcess): Promise<string | undefined> {
  const health = (await (await fetch(`${url}/api/health`)).json()) as { replication?: string }
  return health.replication
}

const SYNCHRONOUS = `synchronous_standby_names = 'ANY 1 (*)'`
const FAILOVERS = 2
/** Between two failovers. */
const LOAD_MIN_MS = 500
const LOAD_MAX_MS = 3_000
/** From the end of the promotion, whose own time depends on the machine. */
const RECOVERY_LIMIT_MS = 5_000
/** Of one attempt to deliver. */
const ATTEMPT_TIMEOUT_MS = 1_000

const startServices = (url: string, count: number): Promise<ServiceProcess[]> =>
  Promise.all(Array.from({ length: count }, () => startHealthy({ ...NO_LIMITS, DATABASE_URL: url })))

/** A primary and two standbys, of which one must have each commit, and two instances of the service under load. */
async function startUnderLoad() {
  const cluster = await startCluster(2, SYNCHRONOUS)
  const services = await startServices(cluster.url, 2)
  const database = openDatabase(cluster.url)
  const load = new FailoverLoad(
    services.map(({ url }) => url),
    await addTenant(database),
    database,
  )
  // Whose events measure the recovery.
  const tenant = await addTenant(database)
  onTestFinished(() => load.client.close())
  load.start()
  return { cluster, services, tenant, load }
}

/** Milliseconds since that moment until the instance has stored a delivery. */
async function timeToRecover({ url }: ServiceProcess, tenant: Tenant, startedAtMs: number): Promise<number> {
  for (;;) {
    const { path, init } = signedDelivery(tenant, [lineEvent('message', randomUserId())])
    const signal = AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)
    const status = await fetch(url + path, { ...init, signal }).then(
      (answer) => answer.status,
      () => 0,
    )
    if (status === 200) return performance.now() - startedAtMs
    expect([0, 503]).toContain(status)
    await sleep(20)
  }
}

test('loses nothing acknowledged when the primary dies or hangs under load', async () => {
  const { cluster, services, tenant, load } = await startUnderLoad()
  const recoveries: number[] = []
  for (let no = 0; no < FAILOVERS; no += 1) {
    await sleep(randomInt(LOAD_MIN_MS, LOAD_MAX_MS))
    const hangs = no === 1
    if (hangs) cluster.primary.freeze()
    else await cluster.primary.kill()
    const former = await cluster.failOver()
    const startedAtMs = performance.now()
    const measured = services.map((service) => timeToRecover(service, tenant, startedAtMs))
    recoveries.push(...(await Promise.all(measured)))
    if (hangs) {
      // The machine wakes up and still believes that it is the primary.
      former.thaw()
      await sleep(randomInt(LOAD_MIN_MS, LOAD_MAX_MS))
    }
    await cluster.rebuild(former)
  }
  await load.finish()
  console.info({
    recoveriesMs: recoveries.map(Math.round),
    ...load.acknowledged,
    statuses: load.client.statuses,
  })
  expect(await load.compare()).toEqual([])
  expect(load.revokedAndLetIn).toBe(0)
  expect(Math.max(...recoveries)).toBeLessThan(RECOVERY_LIMIT_MS)
  // More than one per person and failover, so the books are about something.
  expect(Math.min(...Object.values(load.acknowledged))).toBeGreaterThan(FAILOVERS)
})

test('loses nothing acknowledged when the former primary keeps running', async () => {
  const { cluster, services, tenant, load } = await startUnderLoad()
  await sleep(LOAD_MIN_MS)
  const former = await cluster.failOver()
  const startedAtMs = performance.now()
  const recoveries = await Promise.all(services.map((each) => timeToRecover(each, tenant, startedAtMs)))
  // Both servers accept writes. The former primary has no standby left, so none of its commits ends.
  await sleep(LOAD_MAX_MS)
  await cluster.rebuild(former)
  await load.finish()
  // Revocations are not compared: until an instance has noticed the takeover, it reads the former primary.
  expect(await load.compare()).toEqual([])
  expect(Math.max(...recoveries)).toBeLessThan(RECOVERY_LIMIT_MS)
})

test('answers no delivery with 200 that is on the primary alone', async () => {
  const cluster = await startCluster(1, SYNCHRONOUS)
  const [service] = (await startServices(cluster.url, 1)) as [ServiceProcess]
  const tenant = await addTenant(openDatabase(cluster.url))
  const [standby] = cluster.standbys
  standby?.freeze()
  const { path, init } = signedDelivery(tenant, [lineEvent('message', randomUserId())])
  const deliver = async () => (await fetch(service.url + path, init)).status
  const first = deliver()
  const waiting = `from pg_stat_activity where wait_event = 'SyncRep'`
  await expect.poll(() => cluster.primary.ask(`select count(*) ${waiting}`)).toBe('1')
  // An administrator wonders about the statement. PostgreSQL then commits it without the standby, and says that it has.
  await cluster.primary.ask(`select pg_cancel_backend(pid) ${waiting}`)
  expect(await first).toBe(503)
  // The event is a duplicate of one that exists on one machine.
  expect(await deliver()).toBe(503)
  standby?.thaw()
  await expect.poll(deliver).toBe(200)
})

test('says whether a second disk has what was acknowledged', async () => {
  const cluster = await startCluster(1)
  const { primary, url } = cluster
  const [service] = (await startServices(url, 1)) as [ServiceProcess]
  const doctor = async (address = url) => {
    const { stdout } = await runProgramAsync(['doctor', '--json'], { DATABASE_URL: address })
    const findings: Array<{ check: string; severity: string; message: string }> = JSON.parse(stdout)
    return findings.find(({ check }) => check === 'replication')
  }
  const becomes = (state: string) => expect.poll(() => readHealth(service)).toBe(state)
  const says = async (severity: string, text: string, address = url) =>
    expect(await doctor(address)).toMatchObject({ severity, message: expect.stringContaining(text) })

  await becomes('asynchronous')
  await says('warning', 'exists on one disk')
  await primary.ask(`alter system set synchronous_standby_names = '*'`)
  await primary.ask('select pg_reload_conf()')
  await becomes('synchronous')
  await says('ok', '')
  await primary.ask('create role app login; grant all on all tables in schema public to app')
  const asApp = url.replace('postgres@', 'app@')
  await says('warning', 'pg_monitor', asApp)
  await primary.ask('grant pg_monitor to app')
  await says('ok', '', asApp)
  await cluster.standbys[0]?.kill()
  await becomes('missing')
  await says('error', 'nothing is stored')
  expect((await fetch(`${service.url}/api/health`)).status).toBe(200)
})

test('is proved by prove, with a command that fails over', async () => {
  const cluster = await startCluster(2, SYNCHRONOUS)
  const operator = await serveForTest(async (_, response) => {
    await cluster.primary.kill()
    await cluster.rebuild(await cluster.failOver())
    response.end()
  })
  const env = { DATABASE_URL: cluster.url }
  await runProgramAsync(['migrate'], env)
  const failOver = `"${process.execPath}" -e "fetch('${operator}/').catch(() => process.exit(1))"`
  const args = ['prove', '--kills', '1', '--failover-command', failOver, '--json']
  const { status, stdout, stderr } = await runProgramAsync(args, env)
  expect(status, stderr).toBe(0)
  const outcome = JSON.parse(stdout)
  expect(outcome).toMatchObject({ failover: 1, missing: 0, twice: 0, unknown: 0 })
  expect(outcome.slowestRecoveryMs).toBeLessThan(RECOVERY_LIMIT_MS)
})
