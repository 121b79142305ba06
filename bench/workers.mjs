/** Deliveries per second with one process and with two (WEB_CONCURRENCY), which share two cores with PostgreSQL. */
import { availableParallelism, loadavg } from 'node:os'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { startService, urlOf } from './targets.mjs'

const CONNECTIONS = 64
const PROCESSES = [1, 2]

export async function run({ smoke }) {
  const rounds = smoke ? 1 : 7
  const size = smoke ? 300 : 12_000
  const { server, database, close } = await openDatabase()
  const targets = []
  try {
    const organizationId = await addOrganization(database, 'bench')
    const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
    const { id } = await addAccount(database, organizationId, columns)
    for (const processes of PROCESSES) {
      const env = { DATABASE_URL: urlOf(server), WEB_CONCURRENCY: String(processes) }
      targets.push({ processes, results: [], ...(await startService(env)) })
    }
    for (let round = 0; round <= rounds; round += 1) {
      for (const { port, results } of targets) {
        const result = await send({ port, connections: CONNECTIONS, requests: requestsFor(id, size, 1) })
        if (result.failures > 0) throw new Error(`${result.failures} deliveries failed`)
        // V8 compiles the service in the first round, and the second process starts.
        if (round > 0) results.push(result)
      }
    }
    report(targets, rounds, size)
  } finally {
    for (const { child } of targets) child.kill('SIGTERM')
    await close()
  }
}

function report(targets, rounds, size) {
  const load = loadavg()[0].toFixed(1)
  console.log(
    `${CONNECTIONS} connections, 1 event a delivery, ${rounds} rounds of ${size}, ${availableParallelism()} cores; load average ${load}`,
  )
  const of = ({ results }, field) => median(results.map((result) => result[field]))
  for (const target of targets) {
    const rate = of(target, 'perSecond')
    const ratio = (rate / of(targets[0], 'perSecond')).toFixed(2)
    console.log(
      `  processes: ${target.processes}  ${String(Math.round(rate)).padStart(6)}/s   ratio ${ratio}   p50 ${of(target, 'p50Ms').toFixed(1)} ms  p99 ${of(target, 'p99Ms').toFixed(1)} ms`,
    )
  }
}
