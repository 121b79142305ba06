/** Strangers hold bodies open: the service needs no more memory than docs/operations.md says, and LINE's deliveries are not refused. */
import { execFileSync, fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { becomesWell, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const CONNECTIONS = 3_000
const DELIVERIES = 150
const DELIVERY_INTERVAL_MS = 20
/** What docs/operations.md asks for. */
const MEMORY_MIB = 1024
const HEAP_MIB = 256

/** The 95th percentile of their latencies in ms. Every delivery is accepted. */
async function measureDeliveries(url: string, tenant: Tenant): Promise<number> {
  const latenciesMs = await Promise.all(
    Array.from({ length: DELIVERIES }, async (_, no) => {
      const { path, init } = signedDelivery(tenant, [lineEvent('message', randomUserId())])
      await sleep(no * DELIVERY_INTERVAL_MS)
      const startedAtMs = performance.now()
      const answer = await fetch(url + path, init)
      expect(answer.status).toBe(200)
      await answer.arrayBuffer()
      return performance.now() - startedAtMs
    }),
  )
  latenciesMs.sort((a, b) => a - b)
  return latenciesMs[Math.floor(DELIVERIES * 0.95)] as number
}

const residentMiB = (pid: number) =>
  Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' })) / 1024

function holdBodies(url: string, path: string, pieceBytes: number): Promise<unknown> {
  const program = fileURLToPath(new URL('../support/hold-bodies.mjs', import.meta.url))
  const args = [new URL(url).port, path, CONNECTIONS, 1024 * 1024, pieceBytes].map(String)
  const attacker = fork(program, args, { execArgv: [], env: {} })
  onTestFinished(() => void attacker.kill('SIGKILL'))
  return new Promise((resolve, reject) => {
    attacker.once('message', resolve)
    attacker.once('exit', (code) => reject(new Error(`the program that holds bodies ended with ${code}`)))
  })
}

it.each([
  ['LINE route', 64 * 1024],
  ['tracking route', 64 * 1024],
])(
  `on the %s: ${CONNECTIONS} bodies in pieces of %i bytes that never end delay deliveries and refuse none`,
  async (route, pieceBytes) => {
    const { database, connection } = await createTestDatabase()
    const [tenant, stranger] = [await addTenant(database), await addTenant(database)]
    const service = await spawnService({
      DATABASE_URL: urlOf(connection),
      RATE_LIMIT_MAX: '0',
      NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}`,
    })
    await becomesWell(service.url)
    await measureDeliveries(service.url, tenant)
    const idleMs = await measureDeliveries(service.url, tenant)
    const paths: Record<string, string> = {
      'LINE route': `/api/line/${stranger.accountId}`,
      'tracking route': '/api/tracking',
    }
    let peakMiB = 0
    const sampling = setInterval(() => {
      peakMiB = Math.max(peakMiB, residentMiB(service.child.pid as number))
    }, 200)
    onTestFinished(() => clearInterval(sampling))
    const sent = holdBodies(service.url, paths[route] as string, pieceBytes)
    const attackedMs = await measureDeliveries(service.url, tenant)
    await sent
    const afterMs = await measureDeliveries(service.url, tenant)
    console.log(
      `${route}, pieces of ${pieceBytes}: p95 ${idleMs.toFixed(1)} ms idle, ${attackedMs.toFixed(1)} ms while bodies are sent, ` +
        `${afterMs.toFixed(1)} ms while they are held; ${Math.round(peakMiB)} MiB resident`,
    )
    expect(peakMiB).toBeLessThan(MEMORY_MIB)
    // LINE disconnects after 2 s.
    expect(attackedMs).toBeLessThan(1_000)
    expect(afterMs).toBeLessThan(2 * idleMs + 100)
    await database.close()
  },
)
