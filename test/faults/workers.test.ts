/** WEB_CONCURRENCY: several processes behind one port. */
import { existsSync } from 'node:fs'
import { get } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { RetryingClient } from '../../tools/load/client.ts'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { createTestDatabase, urlOf } from '../support/database.ts'
import { acceptForTest } from '../support/http-server.ts'
import {
  eventually,
  runProgramAsync,
  setUpProcess,
  spawnService,
  startCommand,
  startHealthy,
  temporaryDirectory,
} from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const RUNS_MS = 4_000
/** Timeout of one attempt to deliver. */
const ATTEMPT_TIMEOUT_MS = 2_000

/** The processes that logged requests. */
function workersOf(output: string): number[] {
  const lines = output.split('\n').filter((line) => line.includes('"msg":"request'))
  return [...new Set(lines.map((line) => JSON.parse(line).pid as number))]
}

/** Opens a connection for each request, because a connection belongs to one worker. */
const ask = (url: string) =>
  new Promise<void>((resolve, reject) => {
    get(url, { agent: false }, (response) => response.resume().once('end', resolve)).once('error', reject)
  })

it('shares the port, serves one metrics page, and replaces workers that are killed, and loses or repeats nothing', async () => {
  const metricsPort = await freePort()
  const { database, tenant, service } = await setUpProcess({
    WEB_CONCURRENCY: '3',
    // With PORT=0, the port would change if all workers died.
    PORT: String(await freePort()),
    METRICS_PORT: String(metricsPort),
  })
  await expect
    .poll(() =>
      ask(`${service.url}/api/health`)
        .then(() => sleep(50))
        .then(async () => workersOf(service.output()).length),
    )
    .toBe(3)
  const people = Array.from({ length: 8 }, randomUserId)
  let isFinished = false
  let acknowledged = 0
  // A connection that was just handed to a worker when the worker was killed is never answered. Senders time out.
  const client = new RetryingClient([service.url], ATTEMPT_TIMEOUT_MS)
  const send = async (userId: string) => {
    for (; !isFinished; await sleep(5)) {
      const { path, init } = signedDelivery(tenant, [lineEvent('message', userId)])
      await client.until('delivery', path, init, [200])
      acknowledged += 1
    }
  }
  const senders = Promise.all(people.map(send))
  for (let no = 0; no < 3; no += 1) {
    await sleep(RUNS_MS / 4)
    const pids = workersOf(service.output())
    const victim = pids.toReversed().find((pid) => isRunning(pid)) as number
    process.kill(victim, 'SIGKILL')
  }
  await sleep(RUNS_MS / 4)
  isFinished = true
  await senders
  // No response at most: a worker that starts takes no delivery that it would refuse.
  expect(Object.keys(client.statuses).filter((status) => status !== '0')).toEqual(['200'])
  const counts = await database.query<{ count: bigint }>(
    'select sum(event_count)::bigint as count from audience_member where channel_oa_id = $1',
    [tenant.accountId],
  )
  expect(counts).toEqual([{ count: BigInt(acknowledged) }])
  // Three workers again.
  await expect
    .poll(async () => {
      await ask(`${service.url}/api/health`)
      return workersOf(service.output()).filter(isRunning).length
    })
    .toBe(3)
  const page = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text()
  expect(page).toContain('oa_audience_database_state{state="up"} 1\n')
  expect(page).toMatch(/oa_audience_requests_total\{method="GET",route="\/api\/health",status="200"\} \d+/)
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(workersOf(service.output()).filter(isRunning)).toEqual([])
})

it('serves the metrics of workers that read from replicas, and logs that a worker does not report its own', async () => {
  const { connection } = await createTestDatabase()
  const metricsPort = await freePort()
  const url = urlOf(connection)
  const service = await spawnService({
    ...{ WEB_CONCURRENCY: '2', METRICS_PORT: String(metricsPort), RATE_LIMIT_MAX: '0' },
    ...{ DATABASE_URL: url, DATABASE_READ_URL: url },
  })
  const scrape = () => fetch(`http://127.0.0.1:${metricsPort}/metrics`).then(async (page) => page.text())
  const [stopped] = await eventually(
    () => ask(`${service.url}/api/health`).then(() => workersOf(service.output())),
    (pids) => pids.length === 2,
  )
  expect(await scrape()).toContain('oa_audience_database_sessions{pool="replica-clients",state="total"}')
  process.kill(stopped as number, 'SIGSTOP')
  onTestFinished(() => void process.kill(stopped as number, 'SIGCONT'))
  expect(await scrape()).toContain('"statusCode":503')
  expect(service.output()).toContain('the metrics cannot be scraped')
  process.kill(stopped as number, 'SIGCONT')
  await expect.poll(scrape).toContain('oa_audience_requests_total')
})

it('leaves neither workers nor a locked directory when it is killed', async () => {
  const env = { WEB_CONCURRENCY: '2', DATA_DIR: join(temporaryDirectory(), 'data') }
  const first = await startHealthy(env)
  first.child.kill('SIGKILL')
  await first.exited
  await startHealthy(env)
  const isServed = () =>
    ask(first.url).then(
      () => true,
      () => false,
    )
  await expect.poll(isServed).toBe(false)
})

it('exits with 0 and leaves no server behind when SIGTERM interrupts its start', async () => {
  const DATA_DIR = join(temporaryDirectory(), 'data')
  const first = startCommand(['serve'], { WEB_CONCURRENCY: '2', DATA_DIR, PORT: '0' })
  const lockFile = join(DATA_DIR, 'postgres', 'postmaster.pid')
  await expect.poll(() => existsSync(lockFile)).toBe(true)
  expect(await first.stop()).toEqual({ code: 0, signal: null })
  expect(existsSync(lockFile)).toBe(false)
})

it.each([
  ['PORT', 'is already in use. Stop the other process or set PORT.'],
  ['METRICS_PORT', 'cannot be used: address already in use (EADDRINUSE). Set another port.'],
  ['CONSOLE_PORT', 'cannot be used: address already in use (EADDRINUSE). Set another port.'],
])('ends with one line if %s is already in use', async (name, reason) => {
  const { connection } = await createTestDatabase()
  const port = String(await acceptForTest(() => undefined))
  const CONSOLE_TOKEN = 'x'.repeat(24)
  const env = { WEB_CONCURRENCY: '4', DATABASE_URL: urlOf(connection), CONSOLE_TOKEN, [name]: port }
  const { status, stderr } = await runProgramAsync(['serve'], env)
  expect([status, stderr]).toEqual([1, `oa-audience: ${name} ${port} on 127.0.0.1 ${reason}\n`])
})

it('ends with one line if nobody can sign in to the console', async () => {
  const { connection } = await createTestDatabase()
  const env = { WEB_CONCURRENCY: '2', DATABASE_URL: urlOf(connection), CONSOLE_PORT: '0' }
  const { status, stderr } = await runProgramAsync(['serve'], env)
  expect([status, stderr]).toEqual([1, expect.stringMatching(/^oa-audience: CONSOLE_PORT is set, but .*\n$/)])
})

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
