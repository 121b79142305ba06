/** `npm run soak`: the service under load and random kills for hours, with books. `--help` has the options. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EmbeddedServer } from '../../dist/src/postgres/embedded/server.js'
import { migrate } from '../../dist/src/postgres/migrate.js'
import { freePort } from '../../dist/tools/prove/service.js'
import { simulatePlatform } from '../../dist/tools/simulator/platform.js'
import { TextDatabase } from '../../dist/tools/text-database.js'
import { urlOf } from '../targets.mjs'
import { addTenants } from './accounts.mjs'
import { Clients } from './clients.mjs'
import { FastMaintenance, installClock } from './clock.mjs'
import { Figures } from './figures.mjs'
import { Load } from './load.mjs'
import { HELP, readOptions } from './options.mjs'
import { People } from './people.mjs'
import { seededRandom } from './random.mjs'
import { Receiver } from './receiver.mjs'
import { Requests } from './requests.mjs'
import { Run } from './run.mjs'
import { Senders } from './senders.mjs'
import { Service } from './services.mjs'

const SERVICES = ['service-1', 'service-2']

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
process.exitCode = await soak(options)

async function soak({ durationMs, isFullRate, seed, directory }) {
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'figures.jsonl'), '')
  const dataDirectory = mkdtempSync(join(tmpdir(), 'oa-audience-soak-data-'))
  console.log(`seed ${seed}, ${(durationMs / 3_600_000).toFixed(2)} h, output in ${directory}`)
  const server = new EmbeddedServer(dataDirectory)
  process.once('exit', () => server.abandon())
  const interruption = watchSignals()
  const closers = [() => server.stop()]
  let status = 1
  try {
    await server.own(() => undefined)
    console.log(`database in ${dataDirectory}`)
    const parts = await prepare({ server, isFullRate, seed, directory, dataDirectory, closers })
    status = await new Run(parts, { durationMs, isFullRate, seed, directory, interruption }).complete()
  } finally {
    for (const close of closers.reverse()) await close()
    // The stored rows explain what is wrong.
    if (status !== 0) console.error(`the database is kept in ${dataDirectory}`)
    else rmSync(dataDirectory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }
  return status
}

/** The first signal ends the run with a last check of the books, the second one immediately. */
function watchSignals() {
  const interruption = { isRequested: false }
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.on(signal, () => {
      if (interruption.isRequested) process.exit(1)
      interruption.isRequested = true
    })
  }
  return interruption
}

async function prepare({ server, isFullRate, seed, directory, dataDirectory, closers }) {
  const database = new TextDatabase(server.connection, () => undefined)
  closers.push(() => database.close())
  await migrate(database)
  database.markReady()
  await installClock(database)
  const maintenance = new FastMaintenance(database)
  closers.push(() => maintenance.stop())
  await maintenance.start()

  const random = seededRandom(seed)
  const faults = []
  const onFault = (error) => faults.push(error)
  const platform = await simulatePlatform()
  closers.push(() => platform.close())
  const receiver = new Receiver(random, onFault)
  const receiverUrl = await receiver.start()
  closers.push(() => receiver.close())
  const tenants = await addTenants(database, platform, receiverUrl)
  const people = new People(tenants, isFullRate, random)
  receiver.watch(tenants, people)

  const services = []
  for (const name of SERVICES) {
    const service = new Service(name, await freePort(), environmentOf(server, platform), directory)
    closers.push(() => service.stop())
    process.once('exit', () => service.abandon())
    await service.start()
    services.push(service)
  }
  const requests = new Requests(
    services.map(({ url }) => url),
    random,
  )
  closers.push(() => requests.close())
  const senders = new Senders(requests, people, receiver, random)
  const clients = new Clients({ requests, people, senders, receiver, random })
  const load = new Load({ senders, clients, tenants, isFullRate, random, onFault })
  const events = []
  const parts = {
    database,
    dataDirectory,
    maintenance,
    receiver,
    tenants,
    people,
    services,
    requests,
    senders,
    clients,
  }
  const all = { ...parts, load, events, faults }
  return { ...all, figures: new Figures(all, directory) }
}

function environmentOf(server, platform) {
  return {
    DATABASE_URL: urlOf(server),
    LINE_API_URL: platform.url,
    // All requests come from one address.
    RATE_LIMIT_MAX: '0',
  }
}
