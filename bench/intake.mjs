/**
 * Deliveries per second, and processor time per delivery: this service compared with a bare server, with Express, with two queues, and with
 * the disk. `--record` adds the processor time to RECORD, one line per landing.
 */
import { execFileSync } from 'node:child_process'
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { postmasterOf, processorUs, readPostgres } from './processes.mjs'
import { MAIN, pgbench, startTarget, urlOf } from './targets.mjs'

const CONNECTIONS = 64
/** What the sync of a network disk, and of a slow one, takes longer than that of a local one. */
const COMMIT_DELAYS_MS = [1, 5]
/** A bare server is compiled in full after some ten thousand requests. Before, it takes up to half more. */
const WARM_UP = 40_000

const RECORD = new URL('./intake.jsonl', import.meta.url)

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

export async function run({ smoke, record }) {
  const rounds = smoke ? 1 : 5
  const size = smoke ? 300 : 12_000
  const { directory, server, database, close } = await openDatabase()
  const targets = []
  try {
    const accountId = await prepare(database)
    const databaseUrl = urlOf(server)
    const start = async (name, script, args = []) => {
      const env = { DATABASE_URL: databaseUrl, CHANNEL_SECRET, RATE_LIMIT_MAX: '1000000000' }
      const target = { name, ...(await startTarget([script, ...args], env)), results: [] }
      targets.push(target)
      await send({
        port: target.port,
        connections: CONNECTIONS,
        requests: requestsFor(accountId, smoke ? 64 : 4000, 1),
      })
      return target
    }
    const postmaster = await postmasterOf(database)
    const ours = await start('oa-audience', MAIN, ['serve'])
    const bare = await start('bare node:http', here('./targets/bare.mjs'))
    for (let sent = 0; sent < (smoke ? 0 : WARM_UP); sent += size)
      await send({ port: bare.port, connections: CONNECTIONS, requests: requestsFor(accountId, size, 1) })
    const express = await start('Express + SDK + pg', here('./targets/express.mjs'))
    const boss = await start('Fastify + pg-boss', here('./targets/pg-boss.mjs'))
    const worker = await start('Fastify + graphile-worker', here('./targets/graphile-worker.mjs'))
    const all = [bare, ours, express, boss, worker]
    await wearIn(
      database,
      (count) =>
        send({
          port: ours.port,
          connections: CONNECTIONS,
          requests: requestsFor(accountId, count, 25),
        }),
      smoke,
    )

    console.log(
      `${CONNECTIONS} connections, 1 event a delivery, synchronous_commit=on, ${rounds} rounds of ${size}`,
    )
    for (let round = 0; round < rounds; round += 1) {
      for (const target of all) {
        const count = target === bare || target === ours ? size : Math.ceil(size / 4)
        target.results.push(await measure(target, postmaster, requestsFor(accountId, count, 1)))
        if (target === boss || target === worker) await jobsDone(database)
      }
    }
    report(all, ours)
    const costs = reportProcessorTime(ours, bare)
    if (record) appendFileSync(RECORD, `${JSON.stringify(costs)}\n`)

    /** Sends the same load in each round. Returns a function to the median of a field of the results. */
    const repeat = async (connections, count, eventsEach) => {
      const results = []
      for (let round = 0; round < rounds; round += 1) {
        const requests = requestsFor(accountId, count, eventsEach)
        results.push(await send({ port: ours.port, connections, requests }))
      }
      return (field) => median(results.map((result) => result[field]))
    }
    const batches = await repeat(CONNECTIONS, Math.ceil(size / 3), 5)
    const eventsPerSecond = 5 * batches('perSecond')
    console.log(
      `\n5 events a delivery: ${Math.round(eventsPerSecond)} events/s, p99 ${batches('p99Ms').toFixed(1)} ms`,
    )
    const lone = async () => (await repeat(1, smoke ? 50 : 600, 1))('p50Ms')
    const rows = (count) => commits({ server, directory, count, seconds: smoke ? 1 : 5 })
    const [loneMs, one, many] = [await lone(), rows(1), rows(64)]
    const loneOver = (ms, commit) =>
      `lone delivery p50 ${ms.toFixed(2)} ms / single-row commit   ${(ms / commit.latencyMs).toFixed(1)}`
    if (one !== null && many !== null) {
      const manyRows = many.perSecond * 64
      console.log(
        `pgbench: 1-row commits ${Math.round(one.perSecond)}/s (${one.latencyMs.toFixed(2)} ms), 64-row commits ${Math.round(manyRows)} rows/s`,
      )
      console.log(`  our events / 64-row rows   ${(eventsPerSecond / manyRows).toFixed(2)}`)
      console.log(`  ${loneOver(loneMs, one)}`)
    }
    for (const delayMs of COMMIT_DELAYS_MS) {
      await delayCommits(database, delayMs)
      const slow = { ours: [], express: [] }
      for (let round = 0; round < rounds; round += 1) {
        for (const [name, target, count] of [
          ['ours', ours, smoke ? size : 4_000],
          ['express', express, smoke ? size / 4 : 1_000],
        ]) {
          const requests = requestsFor(accountId, count, 1)
          slow[name].push(await send({ port: target.port, connections: CONNECTIONS, requests }))
        }
      }
      const of = (name, field) => median(slow[name].map((result) => result[field]))
      console.log(`\nwhere each commit takes ${delayMs} ms more`)
      console.log(
        `  oa-audience ${Math.round(of('ours', 'perSecond'))}/s, p99 ${of('ours', 'p99Ms').toFixed(1)} ms; Express ${Math.round(of('express', 'perSecond'))}/s, p99 ${of('express', 'p99Ms').toFixed(1)} ms`,
      )
      console.log(`  ours / Express  ${(of('ours', 'perSecond') / of('express', 'perSecond')).toFixed(1)}`)
      const commit = rows(1)
      if (commit === null) continue
      console.log(`  p99 / single-row commit  ${(of('ours', 'p99Ms') / commit.latencyMs).toFixed(1)}`)
      console.log(`  ${loneOver(await lone(), commit)}`)
    }
    if (targets.some(({ results }) => results.some(({ failures }) => failures > 0)))
      throw new Error('some deliveries failed')
  } finally {
    for (const { child } of targets) child.kill('SIGKILL')
    await close()
  }
}

/** Sends a load, and measures the processor time of the program and of PostgreSQL. It is NaN where there is no /proc. */
async function measure({ port, child }, postmaster, requests) {
  const read = () => {
    const postgres = readPostgres(postmaster)
    return postgres === null
      ? { program: Number.NaN, postgres: Number.NaN }
      : { program: processorUs(child.pid), postgres: postgres.cpuSeconds * 1e6 }
  }
  const before = read()
  const result = await send({ port, connections: CONNECTIONS, requests })
  const after = read()
  const each = (name) => (after[name] - before[name]) / requests.length
  return { ...result, programUs: each('program'), postgresUs: each('postgres') }
}

/** Rates on a shared machine say little. Processor time, divided by that of the bare server in the same round, changes less. */
function reportProcessorTime(ours, bare) {
  const overBare = (field) =>
    median(ours.results.map((result, round) => result[field] / bare.results[round].programUs))
  const us = ({ results }, field) => Math.round(median(results.map((result) => result[field])))
  const [service, postgres] = [overBare('programUs'), overBare('postgresUs')].map((ratio) =>
    Number(ratio.toFixed(2)),
  )
  console.log(
    `processor time per delivery: service ${us(ours, 'programUs')} µs = ${service} × bare, PostgreSQL ${us(ours, 'postgresUs')} µs = ${postgres} × bare (${us(bare, 'programUs')} µs)`,
  )
  const commit = execFileSync('git', ['rev-parse', '--short=8', 'HEAD'], { encoding: 'utf8' }).trim()
  return { date: new Date().toISOString().slice(0, 10), commit, service, postgres }
}

/** Otherwise a queue's worker would take the cores from the next target. */
async function jobsDone(database) {
  const select = `select (select count(*) from pgboss.job where state < 'completed')
                       + (select count(*) from graphile_worker.jobs) as open`
  while (Number((await database.query(select))[0].open) > 0) await sleep(100)
}

async function prepare(database) {
  const organizationId = await addOrganization(database, 'bench')
  const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
  const account = await addAccount(database, organizationId, columns)
  await database.query(
    'create table express_event (id text primary key, account text, user_id text, payload jsonb)',
  )
  await database.query(
    'create table express_member (account text, user_id text, events int, last_seen timestamptz, primary key (account, user_id))',
  )
  await database.query(
    'create table bench_row (id bigint generated always as identity primary key, payload text)',
  )
  return account.id
}

/**
 * A new server zeroes each WAL segment and each page before it first writes there, for some hundred megabytes and never again.
 * Servers in use have passed this phase, so all targets here run after it.
 */
async function wearIn(database, load, smoke) {
  if (smoke) return
  await load(4_000)
  await database.session((session) => session.query('checkpoint'))
}

/** The last column is this service's rate over the target's: below 1, the target is faster. */
function report(targets, ours) {
  const of = ({ results }, field) => median(results.map((result) => result[field]))
  for (const target of targets) {
    const rate = of(target, 'perSecond')
    console.log(
      `  ${target.name.padEnd(26)} ${String(Math.round(rate)).padStart(6)}/s   p50 ${of(target, 'p50Ms').toFixed(1)} ms   p99 ${of(target, 'p99Ms').toFixed(1)} ms   ours / it ${(of(ours, 'perSecond') / rate).toFixed(2)}`,
    )
  }
}

/** Commits of PostgreSQL alone with rows of the same size, by pgbench if it is installed. */
function commits({ server, directory, count, seconds }) {
  const script = `insert into bench_row (payload) select '${'x'.repeat(420)}' from generate_series(1, ${count});`
  return pgbench({ server, directory, script, clients: 1, seconds })
}

/**
 * Makes each commit wait before it syncs, as a slower disk would; a local one syncs in 50 µs. commit_delay is a little kinder than
 * a slow disk: commits that arrive during the wait join the sync.
 */
async function delayCommits(database, ms) {
  await database.session(async (session) => {
    await session.query(`alter system set commit_delay = ${ms * 1000}`)
    await session.query('alter system set commit_siblings = 0')
    await session.query('select pg_reload_conf()')
  })
}
