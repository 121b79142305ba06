/**
 * `oa-audience prove`: tests the promise that no acknowledged event is lost or counted twice. Signed deliveries load a service
 * while it and its database are killed at random moments. Then stored and acknowledged events are compared.
 */
import { randomInt } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { between, withJson } from '../../src/cli/command.ts'
import { printJson, printMany, printOne } from '../../src/cli/io.ts'
import { Progress } from '../../src/cli/progress.ts'
import { type DatabaseChoice, readConfig, variablesOfSecretsKeys } from '../../src/config/config.ts'
import { FatalError } from '../../src/errors.ts'
import { migrateDatabase, withDatabase } from '../../src/postgres/pool/open.ts'
import { makePartitions } from '../../src/upkeep/maintenance.ts'
import {
  addProveAccount,
  type Discrepancies,
  findDiscrepancies,
  type ProveAccount,
  removeLeftAccounts,
  removeProveAccount,
  whileLocked,
} from './account.ts'
import { type Fault, faultsOfEmbedded, faultsOfExternal, faultsOfFailover } from './faults.ts'
import { Load } from './load.ts'
import { freePort, openProxies, Service } from './service.ts'

const INSTANCE = fileURLToPath(new URL('./instance.js', import.meta.url))

/** Pause between two faults. */
const PAUSE_MIN_MS = 300
const PAUSE_MAX_MS = 1_200
/** 5,000 faults × 0.75 s = about an hour. */
const KILLS_MAX = 5_000

type UsableDatabase = Exclude<DatabaseChoice, { kind: 'none' }>

interface Outcome extends Discrepancies {
  /** number of faults by name */
  faults: Record<string, number>
  /** acknowledged deliveries */
  deliveries: number
  /** distinct events in them */
  events: number
  /** deliveries sent again, because no 2xx came or to test deduplication */
  repeated: number
  /** from the end of a failover until the next delivery was acknowledged, the longest */
  slowestRecoveryMs: number
}

interface Options {
  kills: number
  failoverCommand?: string
  json?: boolean
}

export function proveCommand(program: Command): void {
  withJson(program.command('prove'))
    .description(
      'kill a loaded service and its PostgreSQL at random; check that no event is lost or counted twice',
    )
    .addHelpText(
      'after',
      '\nWith DATABASE_URL, a temporary account there is used, and connections are cut instead of killing PostgreSQL.\n' +
        'With --failover-command, the command stops the primary and promotes a standby; each run counts as one fault.',
    )
    .option('--kills <count>', 'number of faults to inject', between(1, KILLS_MAX), 24)
    .option(
      '--failover-command <command>',
      'fail over the database of DATABASE_URL by this shell command instead',
    )
    .action(async ({ kills, failoverCommand, json }: Options) => {
      const { database, dataDir } = readConfig()
      if (database.kind === 'none')
        throw new FatalError('DATABASE_URL is none, so nothing is stored. Unset it or name a database.')
      const choice: UsableDatabase =
        database.kind === 'embedded' ? { kind: 'embedded', dataDir: join(dataDir, 'prove') } : database
      if (failoverCommand !== undefined && database.kind !== 'url')
        throw new FatalError(
          '--failover-command needs a DATABASE_URL that names the primary and its standbys.',
        )
      const outcome = await prove(choice, kills, failoverCommand)
      const { faults, ...counts } = outcome
      if (json) printJson({ ...faults, ...counts })
      else report(outcome)
      if (outcome.missing + outcome.twice + outcome.unknown > 0) process.exitCode = 1
    })
}

/** A database of its own needs the schema. In another one, the account of this run must not look like one that was left. */
async function prove(choice: UsableDatabase, kills: number, failoverCommand?: string): Promise<Outcome> {
  if (choice.kind === 'url')
    return withDatabase(choice, (database) =>
      whileLocked(database, (run) => proveAs(run, choice, kills, failoverCommand)),
    )
  await migrateDatabase(choice)
  await withDatabase(choice, (database) => database.session(makePartitions))
  return proveAs(0, choice, kills)
}

/** Removes its account in any case, because an external database may hold real data. */
async function proveAs(
  run: number,
  choice: UsableDatabase,
  kills: number,
  failoverCommand?: string,
): Promise<Outcome> {
  const account = await withDatabase(choice, (database) => addProveAccount(database, run))
  const interrupted = new AbortController()
  const interrupt = () => interrupted.abort()
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt)
  try {
    const { signal } = interrupted
    return await proveWith(account, () => setUp(account, choice, failoverCommand), choice, kills, signal)
  } catch (error) {
    if (!interrupted.signal.aborted) throw error
    throw new FatalError('interrupted before the end, so nothing is proved')
  } finally {
    await withDatabase(choice, (database) => removeProveAccount(database, account))
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
  }
}

async function proveWith(
  account: ProveAccount,
  prepare: () => Promise<SetUp>,
  choice: UsableDatabase,
  kills: number,
  signal: AbortSignal,
): Promise<Outcome> {
  const { service, faults, close } = await prepare()
  const load = new Load(service.url, account)
  let injected: Injected
  try {
    await service.start()
    // The service owns the embedded server by now, so no other run uses that.
    await withDatabase(choice, (database) => removeLeftAccounts(database, account.id))
    load.start()
    injected = await injectFaults(faults, kills, load, signal)
    await load.finish()
  } finally {
    load.stop()
    await close()
  }
  const found = await withDatabase(choice, (database) => findDiscrepancies(database, account, load))
  return {
    ...injected,
    deliveries: load.acknowledged,
    events: load.eventIds.length,
    repeated: load.repeated,
    ...found,
  }
}

interface SetUp {
  service: Service
  faults: Fault[]
  close: () => Promise<void>
}

async function setUp({ id }: ProveAccount, choice: UsableDatabase, failoverCommand?: string): Promise<SetUp> {
  const port = await freePort()
  const common = { RATE_LIMIT_MAX: '0', ...variablesOfSecretsKeys() }
  if (choice.kind === 'embedded') {
    const service = new Service(port, [INSTANCE, String(id)], { ...common, DATA_DIR: choice.dataDir })
    return { service, faults: faultsOfEmbedded(service, choice.dataDir), close: () => service.stop() }
  }
  if (failoverCommand !== undefined) {
    const service = new Service(port, [INSTANCE, String(id)], {
      ...common,
      DATABASE_URL: choice.url.reveal(),
    })
    return { service, faults: faultsOfFailover(failoverCommand), close: () => service.stop() }
  }
  const { proxies, url } = await openProxies(choice.url.reveal())
  const service = new Service(port, [INSTANCE, String(id)], { ...common, DATABASE_URL: url })
  const close = async () => {
    await service.stop()
    for (const proxy of proxies) proxy.close()
  }
  return { service, faults: faultsOfExternal(service, proxies), close }
}

type Injected = Pick<Outcome, 'faults' | 'slowestRecoveryMs'>

/** Injects each kind of fault in turn. */
async function injectFaults(
  faults: Fault[],
  kills: number,
  load: Load,
  signal: AbortSignal,
): Promise<Injected> {
  const injected: Injected = { faults: {}, slowestRecoveryMs: 0 }
  const progress = new Progress('faults', kills)
  try {
    for (let count = 1; count <= kills; count += 1) {
      await sleep(randomInt(PAUSE_MIN_MS, PAUSE_MAX_MS), undefined, { signal })
      const { name, inject, waitsForRecovery } = faults[(count - 1) % faults.length] as Fault
      await inject()
      injected.faults[name] = (injected.faults[name] ?? 0) + 1
      if (waitsForRecovery) {
        injected.slowestRecoveryMs = Math.max(injected.slowestRecoveryMs, await load.waitForNext())
      }
      progress.show(count, `, ${load.acknowledged} deliveries acknowledged`)
    }
    return injected
  } finally {
    progress.end()
  }
}

function report({ faults, ...counts }: Outcome): void {
  const rows = Object.entries(faults).map(([fault, times]) => ({ fault, times }))
  printMany(rows)
  console.log()
  printOne({
    'deliveries acknowledged': counts.deliveries,
    'distinct events in them': counts.events,
    'deliveries sent again': counts.repeated,
    ...('failover' in faults ? { 'slowest recovery (ms)': counts.slowestRecoveryMs } : {}),
    'events acknowledged but missing': counts.missing,
    'events applied twice': counts.twice,
    'events stored but never acknowledged': counts.unknown,
  })
}
