/** What a standby costs a delivery: none, one that follows, and one that each commit waits for. All run on this machine. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { PostgresDatabase } from '../dist/src/postgres/pool/postgres-database.js'
import { migrate } from '../dist/src/postgres/schema/migrate.js'
import { findDebianPostgres, ReplicatedPostgres } from '../dist/tools/simulator/replicated-postgres.js'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { startService } from './targets.mjs'

const CONNECTIONS = 64
/** Until the standby has the WAL of the round before. */
const CATCH_UP_MS = 200

export async function run({ smoke }) {
  const tools = findDebianPostgres()
  if (tools === null) {
    console.log(
      "Debian's PostgreSQL is not installed: replication is NOT measured (apt-get install postgresql)",
    )
    return
  }
  const rounds = smoke ? 1 : 7
  const size = smoke ? 300 : 8_000
  const lone = smoke ? 50 : 400
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-bench-'))
  // PostgreSQL runs as another user under root, which must be able to enter it.
  chmodSync(directory, 0o755)
  const opened = []
  try {
    const single = await open(tools, join(directory, 'single'), 0, opened)
    const replicated = await open(tools, join(directory, 'replicated'), 1, opened)
    const modes = {
      'no standby': { target: single, names: '' },
      asynchronous: { target: replicated, names: '' },
      synchronous: { target: replicated, names: 'ANY 1 (*)' },
    }
    const results = Object.fromEntries(Object.keys(modes).map((name) => [name, { loaded: [], lone: [] }]))
    for (const { target } of Object.values(modes)) await load(target, CONNECTIONS, smoke ? 64 : 4_000)
    for (let round = 0; round < rounds; round += 1) {
      for (const [name, { target, names }] of Object.entries(modes)) {
        await target.cluster.primary.ask(`alter system set synchronous_standby_names = '${names}'`)
        await target.cluster.primary.ask('select pg_reload_conf()')
        await new Promise((resolve) => setTimeout(resolve, CATCH_UP_MS))
        results[name].loaded.push(await load(target, CONNECTIONS, size))
        results[name].lone.push(await load(target, 1, lone))
      }
    }
    report(results, rounds, size)
  } finally {
    for (const { child, cluster } of opened) {
      child?.kill('SIGKILL')
      await cluster.stop()
    }
    rmSync(directory, { recursive: true, force: true })
  }
}

async function open(tools, directory, standbys, opened) {
  const cluster = await ReplicatedPostgres.start(tools, directory, { standbys, settings: '' })
  const target = { cluster }
  opened.push(target)
  const database = new PostgresDatabase(cluster.url, () => undefined)
  await migrate(database)
  database.markReady()
  const organizationId = await addOrganization(database, 'bench')
  const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
  target.accountId = (await addAccount(database, organizationId, columns)).id
  await database.close()
  return Object.assign(target, await startService({ DATABASE_URL: cluster.url }))
}

async function load({ port, accountId }, connections, count) {
  const result = await send({ port, connections, requests: requestsFor(accountId, count, 1) })
  if (result.failures > 0) throw new Error(`${result.failures} deliveries failed`)
  return result
}

function report(results, rounds, size) {
  const of = (name, kind, field) => median(results[name][kind].map((result) => result[field]))
  const load = loadavg()[0].toFixed(1)
  console.log(
    `${CONNECTIONS} connections, 1 event a delivery, ${rounds} rounds of ${size}; load average ${load}`,
  )
  for (const name of Object.keys(results)) {
    const rate = Math.round(of(name, 'loaded', 'perSecond'))
    const loaded = `p50 ${of(name, 'loaded', 'p50Ms').toFixed(1)} ms  p99 ${of(name, 'loaded', 'p99Ms').toFixed(1)} ms`
    const alone = `alone p50 ${of(name, 'lone', 'p50Ms').toFixed(2)} ms`
    console.log(`  ${name.padEnd(14)} ${String(rate).padStart(6)}/s   ${loaded}   ${alone}`)
  }
  for (const name of ['asynchronous', 'synchronous']) {
    const rate = of(name, 'loaded', 'perSecond') / of('no standby', 'loaded', 'perSecond')
    const extraMs = of(name, 'lone', 'p50Ms') - of('no standby', 'lone', 'p50Ms')
    console.log(
      `  ${name} / no standby  ${rate.toFixed(2)} deliveries/s; a lone delivery takes ${extraMs.toFixed(2)} ms more`,
    )
  }
}
