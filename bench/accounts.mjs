/**
 * Whether work for three accounts costs more beside 1,000 and 30,000 other ones, and what work for all accounts costs each of them.
 *
 * Each number of accounts has a PostgreSQL server and an instance of its own. Processor time counts, because latencies of three
 * servers on one machine say little.
 */
import { performance } from 'node:perf_hooks'
import { gzipSync } from 'node:zlib'
import { listBacklogs } from '../dist/src/endpoints/endpoint-health.js'
import { toJson } from '../dist/src/ids.js'
import { Metrics } from '../dist/src/observability/metrics.js'
import { runMaintenance } from '../dist/src/upkeep/maintenance.js'
import { refreshDueFigures } from '../dist/src/watch/account-figures.js'
import { takeDueAccounts } from '../dist/src/watch/account-monitor.js'
import { fleetRow, listFleet } from '../dist/src/watch/fleet.js'
import { findFleetAccount } from '../dist/src/watch/fleet-facts.js'
import { listProblems, storeStatuses } from '../dist/src/watch/store-statuses.js'
import { addAccounts, requestsOf, USED } from './account-fleet.mjs'
import { openDatabase } from './database.mjs'
import { median, send } from './load.mjs'
import { processorUs, sessionsUs } from './processes.mjs'
import { startService, urlOf } from './targets.mjs'

const CONNECTIONS = 8
/** A new session plans a statement for its values that often, then once for all. */
const PLANNED = 6
const RETENTION = {
  retentionDays: 90,
  deduplicationDays: 400,
  trackingRetentionDays: 7,
  auditRetentionDays: 400,
}

export async function run({ smoke }) {
  const sizes = smoke ? [3, 30, 100] : [3, 1_000, 30_000]
  const fleets = smoke ? [30] : [1_000, 10_000]
  const plan = smoke ? { rounds: 1, requests: 20, passes: 2 } : { rounds: 7, requests: 600, passes: 40 }
  const targets = []
  try {
    for (const accounts of sizes) targets.push(await openTarget(accounts))
    report(sizes, await measureWork(targets, plan))
    console.log('\nwork for all accounts, µs of processor time per account')
    for (const target of targets.slice(1)) await reportWorkForAll(target)
  } finally {
    for (const { close } of targets) await close()
  }
  for (const accounts of fleets) await reportFleet(accounts, smoke ? 2 : 11)
}

/** A database and an instance. Nothing is due, so that only the measured work runs. */
async function openTarget(accounts) {
  console.log(`storing ${accounts} accounts …`)
  const { database, server, close } = await openDatabase()
  const used = await database.session((session) => addAccounts(session, accounts))
  const instance = await startService({
    DATABASE_URL: urlOf(server),
    // Nothing listens there.
    LINE_API_URL: 'http://127.0.0.1:9',
  })
  const end = async () => {
    instance.child.kill('SIGKILL')
    await close()
  }
  return { accounts, database, instance, used, close: end }
}

/** Microseconds by work and number of accounts. The first round warms up. */
async function measureWork(targets, { rounds, requests, passes }) {
  const costs = new Map()
  for (let round = -1; round < rounds; round += 1) {
    for (const [name, make] of Object.entries(requestsOf)) {
      for (const target of targets) {
        const us = await perRequest(
          target,
          Array.from({ length: requests }, (_, i) => make(target.used, i)),
        )
        if (round < 0) continue
        add(costs, `${name}: service`, target.accounts, us[0])
        add(costs, `${name}: PostgreSQL`, target.accounts, us[1])
      }
    }
    for (const [name, pass] of Object.entries(PASSES)) {
      for (const target of targets) {
        const us = await perPass(target, passes, pass)
        if (round >= 0) add(costs, name, target.accounts, us)
      }
    }
  }
  return costs
}

function add(costs, name, accounts, us) {
  const key = `${name} ${accounts}`
  costs.set(key, [...(costs.get(key) ?? []), us])
}

/** What the service does for three accounts by itself, and for an operator who looks at one. */
const PASSES = {
  'monitor: verifications due': async (session) => {
    await session.query('update account_check set due_at = now() where channel_oa_id <= $1', [USED])
    await takeDueAccounts(session, USED)
  },
  'monitor: figures': async (session) => {
    await session.query('update account_check set count_due_at = now() where channel_oa_id <= $1', [USED])
    await refreshDueFigures(session)
  },
  'facts of one account': (session) => findFleetAccount(session, null, BigInt(USED), Date.now()),
}

/** Of the instance and of PostgreSQL. */
async function perRequest({ database, instance }, requests) {
  const used = async () => [processorUs(instance.child.pid), await sessionsUs(database)]
  const before = await used()
  const { failures } = await send({ port: instance.port, connections: CONNECTIONS, requests })
  if (failures > 0) throw new Error(`${failures} requests failed: ${requests[0]}`)
  const after = await used()
  return after.map((us, i) => (us - before[i]) / requests.length)
}

/** Of PostgreSQL. */
function perPass({ database }, passes, pass) {
  return database.session(async (session) => {
    const backend = await backendOf(session)
    for (let i = 0; i < PLANNED; i += 1) await pass(session)
    const before = processorUs(backend)
    for (let i = 0; i < passes; i += 1) await pass(session)
    return (processorUs(backend) - before) / passes
  })
}

async function backendOf(session) {
  const [{ pid }] = await session.query('select pg_backend_pid() as pid')
  return pid
}

function report(sizes, costs) {
  console.log(
    `µs of processor time for ${USED} accounts, beside others: ${sizes.join(', ')} in all; last / first`,
  )
  const parts = Object.keys(requestsOf).flatMap((name) => [`${name}: service`, `${name}: PostgreSQL`])
  for (const name of [...parts, ...Object.keys(PASSES)]) {
    const us = sizes.map((accounts) => median(costs.get(`${name} ${accounts}`)))
    const cells = us.map((value) => value.toFixed(0).padStart(7)).join('')
    console.log(`  ${name.padEnd(34)}${cells}   ${(us.at(-1) / us[0]).toFixed(2)}`)
  }
}

function reportWorkForAll({ accounts, database }) {
  return database.session(async (session) => {
    const backend = await backendOf(session)
    const per = async (label, work) => {
      const [node, postgres] = [process.cpuUsage(), processorUs(backend)]
      await work()
      const { user, system } = process.cpuUsage(node)
      const us = [user + system, processorUs(backend) - postgres].map((value) =>
        (value / accounts).toFixed(1),
      )
      console.log(
        `  ${String(accounts).padStart(6)} accounts, ${label.padEnd(35)} ${us[0]} service, ${us[1]} PostgreSQL`,
      )
    }
    // Members are counted the first time only, because they do not change afterwards.
    await per('figures and counts of members', () => refreshAll(session))
    await per('figures, every ten minutes', () => refreshAll(session))
    await per('maintenance, every hour', () => runMaintenance(session, RETENTION))
    const metrics = new Metrics(['line'])
    const shown = (watch, read) =>
      new Promise((resolve) => watch.call(metrics, () => read().finally(resolve)))
    // The first pass stores all statuses.
    await storeStatuses(session, null, Date.now())
    await per('statuses, every 15 s', () => storeStatuses(session, null, Date.now()))
    await per('metrics of accounts, every 15 s', () =>
      shown(metrics.watchAccounts, () => listProblems(session)),
    )
    await per('metrics of endpoints, every 15 s', () =>
      shown(metrics.watchEndpoints, () => listBacklogs(session)),
    )
    await per('metrics, one scrape', () => metrics.registry.metrics())
    metrics.close()
  })
}

/** From the request of the table until its bytes are ready to be sent. */
async function reportFleet(accounts, rounds) {
  const { database, close } = await openDatabase()
  try {
    await database.session((session) => addAccounts(session, accounts))
    await refreshAll(database)
    const times = []
    for (let round = -3; round < rounds; round += 1) {
      const started = performance.now()
      const fleet = await listFleet(database, null, Date.now())
      gzipSync(toJson({ accounts: fleet.map(fleetRow) }), { level: 1 })
      if (round >= 0) times.push(performance.now() - started)
    }
    console.log(`\ntable of ${accounts} accounts: ${median(times).toFixed(0)} ms`)
  } finally {
    await close()
  }
}

async function refreshAll(database) {
  await database.query('update account_check set count_due_at = now()')
  while ((await refreshDueFigures(database)) > 0);
}
