/** Strangers hold bodies open: the service needs no more memory than docs/operate/run.md says, and LINE's deliveries are not refused. */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { addTenant } from '../support/database.ts'
import { measureDeliveries, measureIdle } from '../support/delivery-latency.ts'
import { MEASURED } from '../support/measured.ts'
import { residentMiB, setUpProcess } from '../support/process.ts'

const CONNECTIONS = 3_000
/** All together 1.5 GiB, half more than the service may take. */
const BODY_BYTES = 512 * 1024
/** Half a gigabit per second. The test is about memory: with more bandwidth, moving the bytes takes most of the machine. */
const SENT_BYTES_PER_SECOND = 64 * 1024 * 1024
/** What docs/operate/run.md asks for. */
const MEMORY_MIB = 1024
const HEAP_MIB = 256

function holdBodies(url: string, path: string): Promise<unknown> {
  const program = fileURLToPath(new URL('../support/hold-bodies.mjs', import.meta.url))
  const args = [new URL(url).port, path, CONNECTIONS, BODY_BYTES, SENT_BYTES_PER_SECOND].map(String)
  const attacker = fork(program, args, { execArgv: [], env: {} })
  onTestFinished(() => void attacker.kill('SIGKILL'))
  const sent = new Promise((resolve, reject) => {
    attacker.once('message', resolve)
    attacker.once('exit', (code) => reject(new Error(`the program that holds bodies ended with ${code}`)))
  })
  // A test that fails earlier does not wait for it.
  sent.catch(() => undefined)
  return sent
}

it(
  `${CONNECTIONS} bodies that never end refuse no delivery of LINE, and take no more memory than stated`,
  MEASURED,
  async () => {
    const heap = { NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}` }
    const { database, tenant, service } = await setUpProcess(heap)
    const stranger = await addTenant(database)
    const idleMs = await measureIdle(service.url, tenant)
    let peakMiB = 0
    const sampling = setInterval(() => {
      peakMiB = Math.max(peakMiB, residentMiB(service))
    }, 200)
    onTestFinished(() => clearInterval(sampling))
    const sent = holdBodies(service.url, `/api/line/${stranger.accountId}`)
    const attackedMs = await measureDeliveries(service.url, tenant)
    await sent
    const afterMs = await measureDeliveries(service.url, tenant)
    console.log(
      `p95 ${idleMs.toFixed(1)} ms idle, ${attackedMs.toFixed(1)} ms while bodies are sent, ` +
        `${afterMs.toFixed(1)} ms while they are held; ${Math.round(peakMiB)} MiB resident`,
    )
    await database.close()
    expect(peakMiB).toBeLessThan(MEMORY_MIB)
  },
)
