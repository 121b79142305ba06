/** WEB_CONCURRENCY: several worker processes share one port. The first process starts them and replaces those that die. */
import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import pino, { type Logger } from 'pino'
import { AggregatorRegistry } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { Secret } from '../config/secret.ts'
import { serveMetrics } from '../http/metrics-page.ts'
import { SETTINGS } from '../postgres/embedded/postmaster.ts'
import { type Connection, connectionUrl, EmbeddedServer } from '../postgres/embedded/server.ts'

/** What a worker sends once its database is ready, too. */
export const READY = 'ready'
/** Time between the death of a worker and its replacement, so that a recurring fault does not exhaust the machine. */
const RESTART_DELAY_MS = 1_000
/** A worker exits within 10 s of SIGTERM (main.ts). After this time it is killed. */
const STOP_TIMEOUT_MS = 11_000
/** 19 connections of an instance (docs/operate/run.md) and one for the console. */
const CONNECTIONS_PER_WORKER = 20
/** For maintenance, and for commands that run beside the service. */
const OTHER_CONNECTIONS = 20

/**
 * Runs until SIGTERM or SIGINT. The process exits with 0, or with 1 if the start or the stop fails. Throws a FatalError if the embedded
 * server or the metrics page cannot start. The environment of this process no longer has SECRETS_KEYS.
 */
export async function serveWithWorkers(config: Config, secretsKeys: Secret | null): Promise<void> {
  const log = pino({ level: config.logLevel }, pino.destination(1))
  const owning = ownEmbeddedServer(config, log)
  const workers = createWorkers(config, log, secretsKeys, () => void exit(1))
  let metrics: FastifyInstance | null = null
  const stop = async () => {
    void metrics?.close()
    await workers.stop()
    const server = await owning.catch(() => null)
    await server?.stop()
  }
  // A signal ends the first worker, so an interrupted start also fails. The first exit code counts.
  let exiting: Promise<void> | null = null
  const exit = (exitCode: number) => {
    exiting ??= stop().then(() => process.exit(exitCode))
    return exiting
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void exit(0))
  const server = await owning
  await workers.start(server?.connection ?? null)
  if (config.metricsPort !== null) {
    const registry = new AggregatorRegistry()
    const page = { contentType: registry.contentType, metrics: () => registry.clusterMetrics() }
    metrics = await serveMetrics(page, config.host, config.metricsPort, log).catch(async (error) => {
      await stop()
      throw error
    })
  }
}

/** The embedded server must outlive every worker, so this process owns it. Null if DATABASE_URL is set. */
async function ownEmbeddedServer({ database, workers }: Config, log: Logger): Promise<EmbeddedServer | null> {
  if (database.kind !== 'embedded') return null
  const connections = Math.max(
    Number(SETTINGS.max_connections),
    workers * CONNECTIONS_PER_WORKER + OTHER_CONNECTIONS,
  )
  const settings = { ...SETTINGS, max_connections: String(connections) }
  const server = new EmbeddedServer(database.dataDir, settings)
  await server.own((error) => log.warn(`a database connection was lost (${error.message})`))
  return server
}

function createWorkers(config: Config, log: Logger, secretsKeys: Secret | null, onFailure: () => void) {
  // If a worker ends before one was ready, the start has failed, and the worker is not replaced.
  let isReady = false
  let isStopping = false

  const fork = (no: number, connection: Connection | null): Worker => {
    const worker = cluster.fork(environmentOf(no, connection, secretsKeys))
    worker.on('message', (message) => {
      if (message !== READY || isReady || isStopping) return
      isReady = true
      for (let other = 2; other <= config.workers; other += 1) fork(other, connection)
    })
    worker.once('exit', async (code, signal) => {
      if (isStopping) return
      if (!isReady) return onFailure()
      log.warn({ worker: no, code, signal }, 'a worker ended and is replaced')
      await sleep(RESTART_DELAY_MS)
      if (!isStopping) fork(no, connection)
    })
    return worker
  }

  /** Starts the first worker, and the others once it is ready, so that only one worker reports a failed start. */
  const start = async (connection: Connection | null): Promise<void> => {
    if (!isStopping) await once(fork(1, connection), 'listening')
  }

  const stop = async (): Promise<void> => {
    isStopping = true
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
  return { start, stop }
}

/** Only the first worker serves the console. With the URL of the embedded server, workers do not start their own. */
function environmentOf(
  no: number,
  connection: Connection | null,
  secretsKeys: Secret | null,
): Record<string, string> {
  return {
    ...(secretsKeys && { SECRETS_KEYS: secretsKeys.reveal() }),
    ...(no > 1 && { CONSOLE_PORT: '' }),
    ...(connection && { DATABASE_URL: connectionUrl(connection) }),
  }
}
