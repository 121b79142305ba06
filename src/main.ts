/** The process: configuration → database → app → listen → close on a signal. */
import cluster from 'node:cluster'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import { AggregatorRegistry } from 'prom-client'
import { createApp } from './app.ts'
import { ErasureLedger } from './audience/erasure/erasure-ledger.ts'
import { READY } from './cli/workers.ts'
import { type Config, SERVICE_LINK } from './config/config.ts'
import { createConsole, listenForConsole } from './console/server.ts'
import { isOwnUrl, ownAddresses } from './endpoints/address.ts'
import { HostResolver } from './endpoints/resolver.ts'
import { Sender } from './endpoints/sender.ts'
import { FatalError } from './errors.ts'
import { EgressProxy } from './http/egress-proxy.ts'
import { listen, localUrl } from './http/listen.ts'
import { serveMetrics } from './http/metrics-page.ts'
import { SOURCES } from './intake/sources.ts'
import { Background } from './jobs/background.ts'
import { LineApi } from './line-api/client.ts'
import { IdTokens } from './line-api/id-tokens.ts'
import { deliveryPaths } from './line-api/line-signature.ts'
import { openLog } from './observability/log.ts'
import { Metrics } from './observability/metrics.ts'
import { hasOwner } from './operators/sign-in.ts'
import { type Database, NoDatabase } from './postgres/database.ts'
import { openDatabase } from './upkeep/maintenance.ts'
import { ChannelTester } from './watch/notifications/history.ts'
import { openNotificationSender } from './watch/notifications/send.ts'

/** After SIGTERM, the service still handles requests, and its health check responds with 503, so that load balancers stop using it. */
const DRAIN_MS = 1_000
/** Accepted requests must finish within this time, which is longer than any statement. Then connections are cut. */
const CLOSE_TIMEOUT_MS = 6_500
/** Time for the database connections and the embedded server to end. The three limits together stay below 10 s. */
const RELEASE_TIMEOUT_MS = 2_000
/** A terminal or systemd signals npm and this process, and npm forwards its signal. Signals within this time count as one. */
const SIGNAL_ECHO_MS = 1_000

export interface RunningService {
  url: string
  consoleUrl: string | null
  app: FastifyInstance
  database: Database
  /** Resolves when the database is ready; rejects with a FatalError if it never can be. */
  ready: Promise<void>
  close: (drainMs?: number) => Promise<void>
}

/** Starts the service; it listens when this resolves. Throws a FatalError that says what prevents it. */
export async function startService(
  config: Config,
  log: DestinationStream = pino.destination(1),
): Promise<RunningService> {
  let isClosing = false
  const lines = pino({ level: config.logLevel }, log)
  const notices = { info: (text: string) => lines.info(text), warn: (text: string) => lines.warn(text) }
  for (const name of config.serviceLinks) notices.warn(`${name} is ${SERVICE_LINK}`)
  const erasureLedger = await ErasureLedger.open(config.erasureLedger)
  const opened = await openDatabase(config, notices)
  const database = opened?.database ?? new NoDatabase()
  const metrics = config.metricsPort === null ? null : new Metrics(SOURCES.map((source) => source.name))
  if (opened !== null) metrics?.watchDatabase(opened.database)
  const servers: FastifyInstance[] = []
  let background: Background | null = null
  let metricsServer: FastifyInstance | null = null
  const close = async (drainMs: number) => {
    isClosing = true
    const stopped = background?.stop()
    await sleep(drainMs)
    const parts = await Promise.allSettled([...servers.map(closeServer), stopped])
    void metricsServer?.close()
    metrics?.close()
    await Promise.race([opened?.close(), sleep(RELEASE_TIMEOUT_MS, undefined, { ref: false })])
    for (const part of parts) if (part.status === 'rejected') throw part.reason
  }
  let closed: Promise<void> | null = null
  const closeOnce = (drainMs = 0) => {
    closed ??= close(drainMs)
    return closed
  }
  try {
    const proxy = EgressProxy.open(config.egressProxy)
    const fetch = proxy?.fetch
    const lineApi = new LineApi(config.lineApiUrl, { fetch })
    const isOwn = (url: URL) => isOwnUrl(url, ownUrls(app, config))
    const route = proxy ?? new HostResolver()
    const sender = opened && new Sender(opened.database, isOwn, route)
    const notificationSender = await openNotificationSender(config, isOwn, route)
    const app: FastifyInstance = await createApp({
      ...{ config, database, lineApi, log, metrics, erasureLedger },
      idTokens: new IdTokens(config.lineApiUrl, Date.now, undefined, fetch),
      isClosing: () => isClosing,
      ...(sender === null ? {} : { handOver: sender.handOver }),
    })
    servers.push(app)
    const verifier = { lineApi, publicUrl: config.publicUrl, webhookPaths: deliveryPaths, now: Date.now }
    background =
      opened &&
      new Background({
        ...{ opened, verifier, metrics, notificationSender, erasureLedger },
        ...{ retention: config, heartbeatUrl: config.heartbeatUrl, fetch },
        sender: sender as Sender,
        log: app.log,
      })
    const consoleApp =
      config.console &&
      (await createConsole({
        ...{ config, ...config.console, database, erasureLedger, verifier, log },
        now: Date.now,
        onJob: () => background?.jobs.wake(),
        ownUrls: () => ownUrls(app, config),
        route,
        channelTester: new ChannelTester(notificationSender),
      }))
    if (consoleApp) servers.push(consoleApp)
    // If another worker already handles requests, this one listens only when its database is ready. The first worker listens earlier,
    // for health checks.
    if ((cluster.worker?.id ?? 1) > 1) await opened?.ready
    await listen(app, config)
    metricsServer = metrics && (await listenForMetrics(metrics, config, app.log))
    if (config.console && consoleApp) await listenForConsole(consoleApp, config.host, config.console.port)
    const ready = (opened?.ready ?? Promise.resolve()).then(() =>
      requireSignIn(config, opened?.database ?? null),
    )
    // It may reject before it is awaited.
    ready.catch(() => undefined)
    const consoleUrl = consoleApp && urlOf(consoleApp, config)
    return { url: urlOf(app, config), consoleUrl, app, database, ready, close: closeOnce }
  } catch (error) {
    // The first fault counts.
    await closeOnce().catch(() => undefined)
    throw error
  }
}

/** Throws a FatalError if nobody could sign in to the console. Operators are read once the database is ready. */
async function requireSignIn({ console }: Config, database: Database | null): Promise<void> {
  if (console === null || console.token !== null || database === null || (await hasOwner(database.console)))
    return
  throw new FatalError(
    'CONSOLE_PORT is set, but nobody can sign in: set CONSOLE_TOKEN to a random text of 24 or more characters, or run ' +
      '"oa-audience operators add --role owner --email ADDRESS".',
  )
}

async function listenForMetrics(
  metrics: Metrics,
  { host, metricsPort }: Config,
  log: FastifyInstance['log'],
): Promise<FastifyInstance | null> {
  if (cluster.isWorker) {
    // The first process collects the metrics of all workers (workers.ts). The constructor subscribes this worker to its requests.
    new AggregatorRegistry()
    AggregatorRegistry.setRegistries([metrics.registry])
    return null
  }
  const server = await serveMetrics(metrics.registry, host, metricsPort ?? 0, log)
  log.info(`metrics on HOST ${host}, port ${(server.server.address() as AddressInfo).port}`)
  return server
}

async function closeServer(app: FastifyInstance): Promise<void> {
  const cut = setTimeout(() => app.server.closeAllConnections(), CLOSE_TIMEOUT_MS)
  await app.close()
  clearTimeout(cut)
}

/** `oa-audience serve`: runs until SIGTERM or SIGINT, then exits within 10 s: with 0, or with 1 if the shutdown fails. */
export async function serve(config: Config): Promise<void> {
  const log = openLog()
  const starting = startService(config, log)
  let stoppedAtMs: number | null = null
  const stop = (signal: NodeJS.Signals) => {
    if (stoppedAtMs !== null) {
      // A second signal does not wait for the shutdown.
      if (performance.now() - stoppedAtMs > SIGNAL_ECHO_MS) process.exit(1)
      return
    }
    stoppedAtMs = performance.now()
    const finish = async ({ app, close }: RunningService) => {
      app.log.info(`${signal}: finishing accepted requests`)
      // Ctrl-C need not wait for load balancers.
      const fault = await close(signal === 'SIGTERM' ? DRAIN_MS : 0).catch((error: Error) => error)
      if (fault) app.log.error({ fault: fault.name }, 'the shutdown failed')
      process.exit(fault ? 1 : 0)
    }
    // A start that fails ends the process by itself.
    starting.then(finish, () => undefined)
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  const service = await starting
  await service.ready.catch(async (error) => {
    await service.close().catch(() => undefined)
    throw error
  })
  cluster.worker?.send(READY)
}

/** An endpoint with such a URL would send deliveries back to this service. */
function ownUrls(app: FastifyInstance, { publicUrl, host }: Config): URL[] {
  const { port } = app.server.address() as AddressInfo
  return ownAddresses(publicUrl, host, port)
}

function urlOf(app: FastifyInstance, { host }: Config): string {
  const { port } = app.server.address() as AddressInfo
  return localUrl(host, port)
}
