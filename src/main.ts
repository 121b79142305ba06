/** The process: configuration → database → app → listen → close on a signal. */
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import { createApp } from './app.ts'
import { finishErasures } from './audience/erase.ts'
import { countDueProfiles, ProfileFiller } from './audience/profiles.ts'
import type { Config } from './config.ts'
import { FatalError } from './errors.ts'
import { Metrics, serveMetrics } from './http/metrics.ts'
import { LineApi } from './line-api/client.ts'
import { MAINTENANCE_INTERVAL_MS, makePartitions, runMaintenance } from './maintenance/maintenance.ts'
import { serviceName, serviceVersion } from './package.ts'
import { type OpenDatabase, openForService } from './postgres/open.ts'
import { startTracing } from './trace.ts'

/** After SIGTERM the service still answers, its health with 503, so that balancers look elsewhere first. */
const DRAIN_MS = 1_000
/** What has been accepted must be answered within this; then connections are cut. Longer than any statement. */
const CLOSE_TIMEOUT_MS = 6_500
/** For the database's sessions and the embedded server to end. All three together stay below 10 s. */
const RELEASE_TIMEOUT_MS = 2_000
const IDLE_SWEEP_MS = 50
/** A terminal, or systemd, signals npm and us, and npm passes its own on: within this they are one. */
const SIGNAL_ECHO_MS = 1_000
/**
 * Log lines go out together: a write for each costs 5 % of the throughput. They wait for 16 KiB (pino's limit) or a tenth of a
 * second, and go out at the end of the process whatever ends it, except for a SIGKILL. If nobody reads them, those beyond 16 MiB are
 * dropped: the service must not grow by them.
 */
const LOG_BUFFER = { minLength: 16 * 1024 - 1, periodicFlush: 100, maxLength: 16 * 1024 * 1024 }

export interface RunningService {
  url: string
  app: FastifyInstance
  database: OpenDatabase['database'] | null
  /** resolves when the database is ready for work */
  ready: Promise<void>
  /** answers what was accepted, then closes everything */
  close: (drainMs?: number) => Promise<void>
}

/**
 * Starts the service; it listens when this resolves. Throws a FatalError that says what is in the way.
 * @param log where its lines go, standard output if none is given
 */
export async function startService(config: Config, log?: DestinationStream): Promise<RunningService> {
  let closing = false
  // The app's logger exists before the app: the database is opened first and has things to say.
  const notices: Array<{ level: 'info' | 'warn'; message: string }> = []
  let say = (level: 'info' | 'warn', message: string) => {
    notices.push({ level, message })
  }
  const opened =
    config.database.kind === 'none'
      ? null
      : await openForService(
          config.database,
          { info: (message) => say('info', message), warn: (message) => say('warn', message) },
          makePartitions,
        )
  const database = opened?.database ?? null
  const metrics = config.metricsPort === null ? null : new Metrics()
  const stopTracing = config.tracing
    ? await startTracing({ name: serviceName, version: serviceVersion }, () =>
        say('warn', 'traces cannot be sent: compare OTEL_EXPORTER_OTLP_ENDPOINT'),
      )
    : null
  if (database !== null) metrics?.watchPool(() => database.poolState())
  const lineApi = new LineApi(config.lineApiUrl)
  const app = await createApp({
    config,
    database,
    lineApi,
    log,
    isClosing: () => closing,
    metrics,
  })
  say = (level, message) => app.log[level](message)
  for (const { level, message } of notices) say(level, message)

  const background = opened && workBesideRequests(config, opened, lineApi, metrics, app.log)

  const close = async (drainMs: number) => {
    closing = true
    const stopped = background?.stop()
    await sleep(drainMs)
    // A connection that is kept alive turns idle only when its last answer is out.
    const sweep = setInterval(() => app.server.closeIdleConnections(), IDLE_SWEEP_MS)
    const cut = setTimeout(() => app.server.closeAllConnections(), CLOSE_TIMEOUT_MS)
    await Promise.all([app.close(), stopped])
    metricsServer?.close()
    clearInterval(sweep)
    clearTimeout(cut)
    const released = Promise.all([opened?.close(), stopTracing?.()])
    await Promise.race([released, sleep(RELEASE_TIMEOUT_MS, undefined, { ref: false })])
  }
  let metricsServer: Server | null = null
  let closed: Promise<void> | null = null
  const closeOnce = (drainMs = 0) => {
    closed ??= close(drainMs)
    return closed
  }
  try {
    await app.listen({
      port: config.port,
      host: config.host,
      listenTextResolver: (address) => `listening on ${address}`,
    })
    if (metrics !== null && config.metricsPort !== null) {
      metricsServer = await serveMetrics(metrics, config.host, config.metricsPort)
      const { port } = metricsServer.address() as AddressInfo
      app.log.info(`metrics on HOST ${config.host}, port ${port}`)
    }
  } catch (error) {
    await closeOnce()
    if (error instanceof FatalError) throw error
    throw explainListen(error as Error & { code?: string }, config)
  }
  return {
    url: urlOf(app, config),
    app,
    database,
    ready: opened?.ready ?? Promise.resolve(),
    close: closeOnce,
  }
}

/** From when the database is ready until it is stopped: asks for profiles, and looks after what is stored. */
function workBesideRequests(
  config: Config,
  { database, ready }: OpenDatabase,
  lineApi: LineApi,
  metrics: Metrics | null,
  log: FastifyBaseLogger,
): { stop: () => Promise<void> } {
  const profiles = new ProfileFiller(database, lineApi, {
    asked: (outcome) => metrics?.profileAsked(outcome),
    rests: (accountId, { type }) =>
      log.warn({ accountId: String(accountId), fault: type }, 'the platform gives no profiles: resting'),
  })
  const keepUp = () => {
    Promise.all([
      database.session((session) => runMaintenance(session, config)),
      finishErasures(database),
    ]).catch((error: Error) =>
      log.warn({ fault: error.name }, 'the maintenance failed: trying again in an hour'),
    )
  }
  let timer: NodeJS.Timeout | undefined
  let isStopped = false
  ready.then(
    () => {
      if (isStopped) return
      keepUp()
      timer = setInterval(keepUp, MAINTENANCE_INTERVAL_MS)
      profiles.start()
      metrics?.watchProfileBacklog(() => countDueProfiles(database))
    },
    () => undefined,
  )
  return {
    stop: async () => {
      isStopped = true
      clearInterval(timer)
      await profiles.stop()
    },
  }
}

/** `oa-audience serve`: runs until SIGTERM or SIGINT, then exits with 0 within 10 s. */
export async function serve(config: Config): Promise<void> {
  const lines = pino.destination({ dest: 1, sync: false, contentMode: 'buffer', ...LOG_BUFFER })
  // As bytes: of texts, it measures all that wait anew for each line (2 µs).
  const log = { write: (line: string) => lines.write(Buffer.from(line) as unknown as string) }
  const starting = startService(config, log)
  let stoppedAtMs: number | null = null
  const stop = (signal: NodeJS.Signals) => {
    if (stoppedAtMs !== null) {
      // A second signal waits for nothing.
      if (performance.now() - stoppedAtMs > SIGNAL_ECHO_MS) process.exit(1)
      return
    }
    stoppedAtMs = performance.now()
    starting
      .then(async (service) => {
        service.app.log.info(`${signal}: finishing what was accepted`)
        // A person who presses Ctrl-C waits for nobody.
        await service.close(signal === 'SIGTERM' ? DRAIN_MS : 0)
      })
      .finally(() => process.exit(0))
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  const service = await starting
  try {
    await service.ready
  } catch (error) {
    await service.close()
    throw error
  }
}

function urlOf(app: FastifyInstance, { host }: Config): string {
  const { port } = app.server.address() as AddressInfo
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

export class PortTaken extends FatalError {}

function explainListen(error: Error & { code?: string }, { host, port }: Config): FatalError {
  if (error.code === 'EADDRINUSE')
    return new PortTaken(`PORT ${port} on ${host} is in use: stop what listens there, or set PORT`)
  if (error.code === 'EACCES')
    return new FatalError(`PORT ${port} may not be used by this user: set PORT to 1024 or more`)
  return new FatalError(`cannot listen on HOST ${host}, PORT ${port}: ${error.code ?? error.message}`)
}
