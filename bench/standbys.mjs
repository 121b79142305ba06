/**
 * PostgreSQL with standbys, all on this machine. `replicas`: pages that may be old per second with no, one and two replicas, and their
 * processor time on the primary. `replication`: what a standby costs a delivery: none, one that follows, and one that each commit waits for.
 */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { addCheckpoint } from '../dist/src/audience/feed-statement.js'
import { migrate } from '../dist/src/postgres/schema/migrate.js'
import { findDebianPostgres, ReplicatedPostgres } from '../dist/tools/simulator/replicated-postgres.js'
import { TextDatabase } from '../dist/tools/text-database.js'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { addAudience, cursorAt, get, random, randomId } from './members.mjs'
import { readPostgres } from './processes.mjs'
import { startService } from './targets.mjs'

const READERS = 8
const SENDERS = 64
const MAY_BE_OLD = { 'cache-control': 'max-age=5' }
/** Several, because one account runs at most two statements at a time on each server. */
const ACCOUNTS = 8
/** Until the standby has the WAL of the round before. */
const CATCH_UP_MS = 200

export const replicas = (options) => withServers((servers) => measureReplicas(servers, options))
export const replication = (options) => withServers((servers) => measureReplication(servers, options))

/** Calls `work` with functions that start clusters and services on them, and ends what they started. */
async function withServers(work) {
  const tools = findDebianPostgres()
  if (tools === null) {
    console.log("Debian's PostgreSQL is not installed: this is NOT measured (apt-get install postgresql)")
    return
  }
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-bench-'))
  // Under root, PostgreSQL runs as another user, which must be able to enter the directory.
  chmodSync(directory, 0o755)
  const [clusters, services] = [[], []]
  const startCluster = async (standbys) => {
    const path = join(directory, String(clusters.length))
    const cluster = await ReplicatedPostgres.start(tools, path, { standbys, settings: '' })
    clusters.push(cluster)
    return cluster
  }
  const start = async (env) => {
    const service = await startService(env)
    services.push(service)
    return service
  }
  try {
    await work({ startCluster, start })
  } finally {
    for (const { child } of services) child.kill('SIGKILL')
    for (const cluster of clusters) await cluster.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Migrates the database and passes it to `work`. */
async function fill(url, work) {
  const database = new TextDatabase(url, () => undefined)
  await migrate(database)
  database.markReady()
  const filled = await work(database)
  await database.close()
  return filled
}

const medianOf = (results, field) => median(results.map((result) => result[field]))

async function measureReplicas({ startCluster, start }, { smoke }) {
  const [rounds, size, members] = smoke ? [1, 100, 200] : [7, 4_000, 10_000]
  const cluster = await startCluster(2)
  const url = `postgres://postgres@127.0.0.1:${cluster.primary.port}/postgres`
  const audiences = await fill(url, async (database) => {
    await addCheckpoint(database)
    await database.query(`insert into organization (name) values ('bench')`)
    const added = []
    for (let id = 1n; id <= ACCOUNTS; id += 1n) added.push(await addAudience(database, id, members))
    return added
  })
  const services = []
  for (const count of [0, 1, 2]) {
    const hosts = cluster.standbys.slice(0, count).map(({ port }) => `127.0.0.1:${port}`)
    const read = count > 0 && { DATABASE_READ_URL: `postgres://postgres@${hosts.join(',')}/postgres` }
    services.push(await start({ DATABASE_URL: url, ...read }))
  }
  const results = services.map(() => [])
  for (let round = 0; round <= rounds; round += 1) {
    for (const [count, { port }] of services.entries()) {
      const result = await readPages(cluster, port, audiences, size)
      // The first round fills caches.
      if (round > 0) results[count].push(result)
    }
  }
  console.log(
    `pages of 50, ${READERS} connections, ${ACCOUNTS} accounts, ${rounds} rounds of ${size}; load average ${loadavg()[0].toFixed(1)}`,
  )
  for (const [count, result] of results.entries()) {
    const rate = medianOf(result, 'perSecond')
    const ratio = (rate / medianOf(results[0], 'perSecond')).toFixed(2)
    const primary = `${Math.round(medianOf(result, 'primaryUs'))} µs of the primary's processor a page`
    console.log(
      `  replicas: ${count}  ${String(Math.round(rate)).padStart(6)}/s   ratio ${ratio}   p50 ${medianOf(result, 'p50Ms').toFixed(1)} ms   ${primary}`,
    )
  }
}

/** Pages of 50 at random positions. */
async function readPages(cluster, port, audiences, size) {
  const requests = Array.from({ length: size }, () => {
    const audience = audiences[random(audiences.length)]
    return get(audience, `/api/audience?cursor=${cursorAt(audience, randomId(audience))}`, MAY_BE_OLD)
  })
  const before = await processorSeconds(cluster.primary)
  const { failures, perSecond, p50Ms } = await send({ port, connections: READERS, requests })
  if (failures > 0) throw new Error(`${failures} pages failed`)
  return { perSecond, p50Ms, primaryUs: ((await processorSeconds(cluster.primary)) - before) * (1e6 / size) }
}

/** Processor time of the server and of its sessions, including those that have ended. NaN where there is no /proc. */
async function processorSeconds(server) {
  const pid = await server.ask(`select split_part(pg_read_file('postmaster.pid'), chr(10), 1)`)
  return readPostgres(Number(pid))?.cpuSeconds ?? Number.NaN
}

async function measureReplication({ startCluster, start }, { smoke }) {
  const [rounds, size, alone] = smoke ? [1, 300, 50] : [7, 8_000, 400]
  const open = async (standbys) => {
    const cluster = await startCluster(standbys)
    const accountId = await fill(cluster.url, async (database) => {
      const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
      return (await addAccount(database, await addOrganization(database, 'bench'), columns)).id
    })
    return { cluster, accountId, ...(await start({ DATABASE_URL: cluster.url })) }
  }
  const [single, replicated] = [await open(0), await open(1)]
  const modes = [
    { name: 'no standby', target: single, standbyNames: '', loaded: [], lone: [] },
    { name: 'asynchronous', target: replicated, standbyNames: '', loaded: [], lone: [] },
    { name: 'synchronous', target: replicated, standbyNames: 'ANY 1 (*)', loaded: [], lone: [] },
  ]
  for (const { target } of modes) await deliver(target, SENDERS, smoke ? 64 : 4_000)
  for (let round = 0; round < rounds; round += 1) {
    for (const { target, standbyNames, loaded, lone } of modes) {
      await target.cluster.primary.ask(`alter system set synchronous_standby_names = '${standbyNames}'`)
      await target.cluster.primary.ask('select pg_reload_conf()')
      await new Promise((resolve) => setTimeout(resolve, CATCH_UP_MS))
      loaded.push(await deliver(target, SENDERS, size))
      lone.push(await deliver(target, 1, alone))
    }
  }
  console.log(
    `${SENDERS} connections, 1 event a delivery, ${rounds} rounds of ${size}; load average ${loadavg()[0].toFixed(1)}`,
  )
  for (const { name, loaded, lone } of modes) {
    const rate = Math.round(medianOf(loaded, 'perSecond'))
    const ms = `p50 ${medianOf(loaded, 'p50Ms').toFixed(1)} ms  p99 ${medianOf(loaded, 'p99Ms').toFixed(1)} ms`
    const aloneMs = `alone p50 ${medianOf(lone, 'p50Ms').toFixed(2)} ms`
    console.log(`  ${name.padEnd(14)} ${String(rate).padStart(6)}/s   ${ms}   ${aloneMs}`)
  }
  const [none, ...others] = modes
  for (const { name, loaded, lone } of others) {
    const rate = medianOf(loaded, 'perSecond') / medianOf(none.loaded, 'perSecond')
    const extraMs = medianOf(lone, 'p50Ms') - medianOf(none.lone, 'p50Ms')
    console.log(
      `  ${name} / no standby  ${rate.toFixed(2)} deliveries/s; a lone delivery takes ${extraMs.toFixed(2)} ms more`,
    )
  }
}

async function deliver({ port, accountId }, connections, count) {
  const result = await send({ port, connections, requests: requestsFor(accountId, count, 1) })
  if (result.failures > 0) throw new Error(`${result.failures} deliveries failed`)
  return result
}
