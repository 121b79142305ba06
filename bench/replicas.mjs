/** Pages that may be old per second with no, one and two replicas, and their processor time on the primary. All servers run on this machine. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { addCheckpoint } from '../dist/src/audience/checkpoints.js'
import { migrate } from '../dist/src/postgres/schema/migrate.js'
import { findDebianPostgres, ReplicatedPostgres } from '../dist/tools/simulator/replicated-postgres.js'
import { TextDatabase } from '../dist/tools/text-database.js'
import { median, send } from './load.mjs'
import { addAudience, cursorAt, get, random, randomId } from './members.mjs'
import { readPostgres } from './processes.mjs'
import { startService } from './targets.mjs'

const CONNECTIONS = 8
const MAY_BE_OLD = { 'cache-control': 'max-age=5' }
/** Several, because one account runs at most two statements at a time on each server. */
const ACCOUNTS = 8

export async function run({ smoke }) {
  const tools = findDebianPostgres()
  if (tools === null) {
    console.log(
      "Debian's PostgreSQL is not installed: replicas are NOT measured (apt-get install postgresql)",
    )
    return
  }
  const rounds = smoke ? 1 : 7
  const size = smoke ? 100 : 4_000
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-bench-'))
  // Under root, PostgreSQL runs as another user, which must be able to enter the directory.
  chmodSync(directory, 0o755)
  const cluster = await ReplicatedPostgres.start(tools, join(directory, 'cluster'), {
    standbys: 2,
    settings: '',
  })
  const services = []
  try {
    const audiences = await fill(cluster, smoke ? 200 : 10_000)
    for (const replicas of [0, 1, 2]) services.push(await startReading(cluster, replicas))
    const results = services.map(() => [])
    for (let round = 0; round <= rounds; round += 1) {
      for (const [replicas, { port }] of services.entries()) {
        const result = await measure(cluster, port, audiences, size)
        // The first round fills caches.
        if (round > 0) results[replicas].push(result)
      }
    }
    report(results, rounds, size)
  } finally {
    for (const { child } of services) child.kill('SIGKILL')
    await cluster.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

const urlOf = ({ port }) => `postgres://postgres@127.0.0.1:${port}/postgres`

async function fill(cluster, members) {
  const database = new TextDatabase(urlOf(cluster.primary), () => undefined)
  await migrate(database)
  database.markReady()
  await addCheckpoint(database)
  await database.query(`insert into organization (name) values ('bench')`)
  const audiences = []
  for (let id = 1n; id <= ACCOUNTS; id += 1n) audiences.push(await addAudience(database, id, members))
  await database.close()
  return audiences
}

function startReading(cluster, replicas) {
  const hosts = cluster.standbys.slice(0, replicas).map(({ port }) => `127.0.0.1:${port}`)
  return startService({
    DATABASE_URL: urlOf(cluster.primary),
    ...(replicas > 0 && { DATABASE_READ_URL: `postgres://postgres@${hosts.join(',')}/postgres` }),
  })
}

/** Pages of 50 at random positions. */
async function measure(cluster, port, audiences, size) {
  const requests = Array.from({ length: size }, () => {
    const audience = audiences[random(audiences.length)]
    return get(audience, `/api/audience?cursor=${cursorAt(audience, randomId(audience))}`, MAY_BE_OLD)
  })
  const before = await processorSeconds(cluster.primary)
  const { failures, perSecond, p50Ms } = await send({ port, connections: CONNECTIONS, requests })
  if (failures > 0) throw new Error(`${failures} pages failed`)
  return { perSecond, p50Ms, primaryUs: ((await processorSeconds(cluster.primary)) - before) * (1e6 / size) }
}

/** Processor time of the server and of its sessions, including those that have ended. NaN where there is no /proc. */
async function processorSeconds(server) {
  const pid = await server.ask(`select split_part(pg_read_file('postmaster.pid'), chr(10), 1)`)
  return readPostgres(Number(pid))?.cpuSeconds ?? Number.NaN
}

function report(results, rounds, size) {
  const load = loadavg()[0].toFixed(1)
  console.log(
    `pages of 50, ${CONNECTIONS} connections, ${ACCOUNTS} accounts, ${rounds} rounds of ${size}; load average ${load}`,
  )
  const of = (replicas, field) => median(results[replicas].map((result) => result[field]))
  for (const replicas of results.keys()) {
    const rate = of(replicas, 'perSecond')
    const ratio = (rate / of(0, 'perSecond')).toFixed(2)
    const primary = `${Math.round(of(replicas, 'primaryUs'))} µs of the primary's processor a page`
    console.log(
      `  replicas: ${replicas}  ${String(Math.round(rate)).padStart(6)}/s   ratio ${ratio}   p50 ${of(replicas, 'p50Ms').toFixed(1)} ms   ${primary}`,
    )
  }
}
