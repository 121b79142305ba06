/** `npm run soak`: the service under load and random kills for hours, with books. `--help` has the options. */
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { EmbeddedServer } from '../../dist/src/postgres/embedded/server.js'
import { migrate } from '../../dist/src/postgres/schema/migrate.js'
import { RetryingClient } from '../../dist/tools/load/client.js'
import { findDiscrepancies } from '../../dist/tools/load/compare.js'
import { SOURCE } from '../../dist/tools/load/group.js'
import { Receiver } from '../../dist/tools/load/receiver.js'
import { faultsOfEmbedded } from '../../dist/tools/prove/faults.js'
import { freePort, Service } from '../../dist/tools/prove/service.js'
import { simulatePlatform } from '../../dist/tools/simulator/platform.js'
import { TextDatabase } from '../../dist/tools/text-database.js'
import { MAIN, urlOf } from '../targets.mjs'
import { addAccounts } from './accounts.mjs'
import { FastMaintenance, findKeptTooLong, installClock } from './clock.mjs'
import { Figures } from './figures.mjs'
import { Load } from './load.mjs'
import { HELP, readOptions } from './options.mjs'
import { pressure } from './pressure.mjs'

const MINUTE_MS = 60_000
/** On average, per kind. */
const KILL_INTERVAL_MS = 6 * MINUTE_MS
const CHECK_INTERVAL_MS = 5 * MINUTE_MS
/** At full rate a check reads gigabytes. */
const CHECK_INTERVAL_AT_FULL_RATE_MS = 15 * MINUTE_MS
const POLL_MS = 200
/** A wrong book may affect every member. */
const SHOWN_MAX = 10

let options
try {
  options = readOptions(process.argv.slice(2))
} catch (error) {
  console.error(`${error.message.split('\n')[0]}. See npm run soak -- --help`)
  process.exit(2)
}
if (options.help) {
  console.log(HELP)
  process.exit(0)
}
process.exitCode = await (options.isPressure ? pressure : soak)(options)

async function soak({ durationMs, isFullRate, seed, directory }) {
  mkdirSync(directory, { recursive: true })
  const dataDirectory = mkdtempSync(join(tmpdir(), 'oa-audience-soak-data-'))
  console.log(`seed ${seed}, ${(durationMs / 3_600_000).toFixed(2)} h, output in ${directory}`)
  const server = new EmbeddedServer(dataDirectory)
  const closers = [() => server.stop()]
  let status = 1
  try {
    await server.own(() => undefined)
    console.log(`database in ${dataDirectory}`)
    const parts = await prepare({ server, isFullRate, directory, dataDirectory, closers })
    const fault = await run(parts, { durationMs, isFullRate, seed }).then(
      () => null,
      (error) => error,
    )
    status = await report(parts, fault, seed, directory)
  } finally {
    for (const close of closers.reverse()) await close()
    // The stored rows explain what is wrong.
    if (status !== 0) console.error(`the database is kept in ${dataDirectory}`)
    else rmSync(dataDirectory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }
  return status
}

async function prepare({ server, isFullRate, directory, dataDirectory, closers }) {
  const database = new TextDatabase(server.connection, () => undefined)
  closers.push(() => database.close())
  await migrate(database)
  database.markReady()
  await installClock(database)
  const maintenance = new FastMaintenance(database)
  closers.push(() => maintenance.stop())
  await maintenance.start()

  const faults = []
  const onFault = (error) => faults.push(error)
  const platform = await simulatePlatform()
  closers.push(() => platform.close())
  const receiver = new Receiver(onFault)
  closers.push(() => receiver.close())
  receiver.books.push(...(await addAccounts(database, platform, await receiver.start())))

  const env = {
    DATABASE_URL: urlOf(server),
    LINE_API_URL: platform.url,
    RATE_LIMIT_MAX: '0',
    LOG_LEVEL: 'warn',
  }
  const services = []
  for (const name of ['service-1', 'service-2']) {
    const log = openSync(join(directory, `${name}.log`), 'a')
    const service = new Service(await freePort(), ['--enable-source-maps', MAIN, 'serve'], env, log)
    closers.push(() => service.stop().then(() => closeSync(log)))
    process.once('exit', () => void service.kill())
    await service.start()
    services.push(service)
  }
  const client = new RetryingClient(services.map(({ url }) => url))
  closers.push(() => client.close())
  const load = new Load({ client, books: receiver.books, isFullRate, onFault })
  const parts = { database, dataDirectory, maintenance, receiver, services, client, load, faults, events: [] }
  return { ...parts, startedMs: Date.now(), figures: new Figures(parts, directory) }
}

/** Kills and checks at their times, and a line of figures each minute. Throws what ends the run. */
async function run(parts, { durationMs, isFullRate, seed }) {
  const { load, figures, faults, startedMs } = parts
  const signals = watchSignals()
  const minutes = setInterval(() => figures.write().catch((error) => faults.push(error)), MINUTE_MS)
  try {
    load.start()
    for (const { atMs, name, act } of plan(parts, durationMs, isFullRate, seed)) {
      while (!signals.areReceived && Date.now() - startedMs < atMs) {
        throwFault(parts)
        await sleep(POLL_MS)
      }
      if (signals.areReceived) break
      await note(parts, name, act)
    }
    await note(parts, 'check', () => check(parts))
  } finally {
    clearInterval(minutes)
    load.finish().catch(() => undefined)
    await figures.write()
  }
}

/** The first signal ends the run with a last check of the books, the second one immediately. */
function watchSignals() {
  const signals = { areReceived: false }
  for (const name of ['SIGINT', 'SIGTERM']) {
    process.on(name, () => {
      if (signals.areReceived) process.exit(1)
      signals.areReceived = true
    })
  }
  return signals
}

/** The second service runs from beginning to end, so that a slow leak shows in its memory. */
function plan(parts, durationMs, isFullRate, seed) {
  const { services, dataDirectory } = parts
  const [service, postgres] = faultsOfEmbedded(services[0], dataDirectory)
  const random = seededRandom(seed)
  // The last part of the run stays without a kill, so that its end shows a settled state.
  const usedMs = durationMs * 0.9
  const count = Math.max(1, Math.round(usedMs / KILL_INTERVAL_MS))
  const kills = (name, { inject }) =>
    Array.from({ length: count }, (_, part) => ({
      name,
      atMs: ((part + random()) * usedMs) / count,
      act: async () => {
        await inject()
        await becomeHealthy(services)
      },
    }))
  const intervalMs = isFullRate ? CHECK_INTERVAL_AT_FULL_RATE_MS : CHECK_INTERVAL_MS
  const checks = Array.from({ length: Math.max(0, Math.round(durationMs / intervalMs) - 1) }, (_, i) => ({
    name: 'check',
    atMs: (i + 1) * intervalMs,
    act: async () => {
      await check(parts)
      parts.load.start()
    },
  }))
  const end = { name: 'end', atMs: durationMs, act: async () => undefined }
  return [...kills('service', service), ...kills('postgres', postgres), ...checks, end].sort(
    (a, b) => a.atMs - b.atMs,
  )
}

async function note({ events, startedMs }, kind, act) {
  const one = { kind, s: Math.round((Date.now() - startedMs) / 1000) }
  events.push(one)
  const beganMs = Date.now()
  await act()
  one.backMs = Date.now() - beganMs
}

/** After a kill of PostgreSQL, the services are unhealthy until it has recovered. `start` waits for a healthy service. */
async function becomeHealthy(services) {
  await sleep(POLL_MS)
  await Promise.all(services.map((service) => service.start()))
}

/** Compares the books while nothing is in flight. */
async function check({ load, receiver, database, faults, services }) {
  await load.finish()
  throwFault({ faults, services })
  const wrong = await findKeptTooLong(database)
  const sources = await database.query('select distinct source from audience_member where source is not null')
  if (sources.length !== 1 || sources[0].source !== SOURCE)
    wrong.push('members have no source, or one that no visit named')
  for (const [i, book] of receiver.books.entries()) {
    wrong.push(...(await findDiscrepancies(book, load.readers[i], database)))
  }
  if (wrong.length === 0) return
  throw new Error(`${wrong.length} discrepancies:\n  ${wrong.slice(0, SHOWN_MAX).join('\n  ')}`)
}

function throwFault({ faults, services }) {
  if (faults.length > 0) throw faults[0]
  if (services.some(({ hasEnded }) => hasEnded)) throw new Error('a service ended by itself: see its log')
}

async function report({ figures, receiver, load, startedMs }, fault, seed, directory) {
  const { text, trends } = figures.summarize()
  const kinds = figures.lines.flatMap(({ events }) => events.map(({ kind }) => kind))
  const count = (wanted) => kinds.filter((kind) => kind === wanted).length
  const summary = {
    seed,
    hours: (Date.now() - startedMs) / 3_600_000,
    books: fault === null ? 'right' : fault.message,
    checks: count('check'),
    kills: { service: count('service'), postgres: count('postgres') },
    acknowledged: load.acknowledged,
    received: receiver.received,
  }
  writeFileSync(join(directory, 'summary.json'), `${JSON.stringify({ ...summary, trends }, null, 2)}\n`)
  console.log(text)
  console.log(summary)
  if (fault === null) return 0
  console.error(`a book is wrong: ${fault.message}`)
  return 1
}

/** mulberry32: 32 bits of state, which is enough to choose times. */
function seededRandom(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let bits = Math.imul(state ^ (state >>> 15), 1 | state)
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }
}
