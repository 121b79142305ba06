/** WEB_CONCURRENCY: several processes on one machine and one port. This one starts them, and again those that die. */
import cluster, { type Worker } from 'node:cluster'
import type { Server } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import pino, { type Logger } from 'pino'
import { AggregatorRegistry } from 'prom-client'
import type { Config } from './config.ts'
import { serveMetrics } from './observability/metrics.ts'
import { SETTINGS } from './postgres/embedded/postmaster.ts'
import { type Connection, EmbeddedServer } from './postgres/embedded/server.ts'

/** Between the death of a worker and its replacement, so that a fault that recurs does not use the machine up. */
const RESTART_DELAY_MS = 1_000
/** A worker ends by itself within 10 s (main.ts). One that does not is killed. */
const STOP_TIMEOUT_MS = 11_000
/** Per worker, with the connections of commands and of maintenance: docs/operations.md counts them. */
const CONNECTIONS_PER_WORKER = 20
const OTHER_CONNECTIONS = 20

/**
 * `oa-audience serve` with WEB_CONCURRENCY above 1: runs until SIGTERM or SIGINT. The process exits with 0, or with 1 if the
 * first worker cannot start. Throws a FatalError if the embedded server or the metrics cannot start.
 */
export async function serveWithWorkers(config: Config): Promise<void> {
  const log = pino({ level: config.logLevel }, pino.destination(1))
  const server = await ownEmbeddedServer(config, log)
  const workers = new Workers(config, log, server?.connection ?? null)
  let metrics: Server | null = null
  const stop = async (exitCode: number) => {
    metrics?.close()
    await workers.stop()
    await server?.stop()
    process.exit(exitCode)
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(0))
  const canStart = await workers.start()
  if (!canStart) return stop(1)
  if (config.metricsPort !== null) {
    const registry = new AggregatorRegistry()
    const page = { contentType: registry.contentType, metrics: () => registry.clusterMetrics() }
    metrics = await serveMetrics(page, config.host, config.metricsPort)
  }
}

/** Null: DATABASE_URL names a server. The server outlives every worker, so it belongs to the process that does. */
async function ownEmbeddedServer({ database, workers }: Config, log: Logger): Promise<EmbeddedServer | null> {
  if (database.kind !== 'embedded') return null
  const connections = Math.max(
    Number(SETTINGS.max_connections),
    workers * CONNECTIONS_PER_WORKER + OTHER_CONNECTIONS,
  )
  const settings = { ...SETTINGS, max_connections: String(connections) }
  const server = new EmbeddedServer(database.dataDir, settings)
  process.once('exit', () => server.abandon())
  await server.own((error) => log.warn(`a database connection was lost (${error.message})`))
  return server
}

class Workers {
  readonly #config: Config
  readonly #log: Logger
  /** of the embedded server */
  readonly #connection: Connection | null
  #isStopping = false

  constructor(config: Config, log: Logger, connection: Connection | null) {
    this.#config = config
    this.#log = log
    this.#connection = connection
  }

  /**
   * Starts the first worker, and the others once it listens: what prevents the start is said once. Returns false if the first one
   * ends before.
   */
  async start(): Promise<boolean> {
    const listens = await new Promise<boolean>((resolve) => {
      const first = this.#fork(1)
      first.once('listening', () => resolve(true))
      first.once('exit', () => resolve(false))
    })
    if (!listens) return false
    for (let no = 2; no <= this.#config.workers; no += 1) this.#fork(no)
    return true
  }

  /** Resolves when all workers have ended. */
  async stop(): Promise<void> {
    this.#isStopping = true
    const running = Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined)
    for (const worker of running) worker.process.kill('SIGTERM')
    const kill = setTimeout(() => {
      for (const worker of running) worker.process.kill('SIGKILL')
    }, STOP_TIMEOUT_MS)
    await Promise.all(
      running.map((worker) => worker.isDead() || new Promise((resolve) => worker.once('exit', resolve))),
    )
    clearTimeout(kill)
  }

  #fork(no: number): Worker {
    const worker = cluster.fork(environmentOf(no, this.#connection))
    let hasListened = false
    worker.once('listening', () => {
      hasListened = true
    })
    worker.once('exit', async (code, signal) => {
      if (this.#isStopping || (no === 1 && !hasListened && this.#isAlone())) return
      this.#log.warn({ worker: no, code, signal }, 'a worker ended; another one starts')
      await sleep(RESTART_DELAY_MS)
      if (!this.#isStopping) this.#fork(no)
    })
    return worker
  }

  #isAlone(): boolean {
    return Object.keys(cluster.workers ?? {}).length === 0
  }
}

/** The first worker serves the console. All use the embedded server as a server of their own. */
function environmentOf(no: number, connection: Connection | null): Record<string, string> {
  const { host, port, user, database } = connection ?? {}
  return {
    ...(no > 1 && { CONSOLE_PORT: '' }),
    ...(connection && {
      DATABASE_URL: `postgres://${user}@/${database}?host=${encodeURIComponent(host ?? '')}&port=${port}`,
    }),
  }
}
