/** Joins all parts and registers every route. */
import type { FastifyInstance } from 'fastify'
import pino, { type DestinationStream } from 'pino'
import { decorateWithCaller, requireApiClient } from './accounts/scope.ts'
import { verificationSchemas } from './accounts/verification.ts'
import { verifyRoute } from './accounts/verify.ts'
import { eraseRoute } from './audience/erasure/erase.ts'
import type { ErasureLedger } from './audience/erasure/erasure-ledger.ts'
import { listRoute } from './audience/list-route.ts'
import { memberSchemas } from './audience/member-schemas.ts'
import { updateRoute } from './audience/update.ts'
import type { Config } from './config/config.ts'
import { TRACKING_BUDGETS, type TrackingBudgets } from './config/limits.ts'
import { serviceName as name, serviceVersion as version } from './config/package.ts'
import { endpointWebhooks } from './endpoints/message-schemas.ts'
import { BodyBudget } from './http/body-budget.ts'
import { ErrorEnvelopeSchema } from './http/error-envelope.ts'
import { healthRoutes } from './http/health.ts'
import { collectRouteSchemas, documentRoutes } from './http/openapi.ts'
import { limitRate } from './http/rate-limit.ts'
import { createServer, refuseUnknownRoutes, requireWellFormed } from './http/server.ts'
import { DeliveryCounts } from './intake/delivery-counts.ts'
import type { HandOver } from './intake/flush.ts'
import { Receipt, TrackingReceipt } from './intake/receipt-schemas.ts'
import { Intake } from './intake/receive.ts'
import { SOURCES } from './intake/sources.ts'
import { LineApi } from './line-api/client.ts'
import { IdTokens } from './line-api/id-tokens.ts'
import { deliveryPaths, LINE } from './line-api/line-signature.ts'
import { logFacts, logRequests } from './observability/log.ts'
import type { Metrics } from './observability/metrics.ts'
import type { Database } from './postgres/database.ts'
import { NotifiedAccountSchema, notificationWebhooks } from './watch/notifications/notification-schemas.ts'

/** Of the OpenAPI document. Route schemas refer to them by name. */
const SCHEMAS = {
  ...memberSchemas,
  ...verificationSchemas,
  ...{ Receipt, TrackingReceipt, NotifiedAccount: NotifiedAccountSchema, Error: ErrorEnvelopeSchema },
}

type AppConfig = Pick<
  Config,
  'logLevel' | 'trustProxy' | 'rateLimit' | 'redisUrl' | 'lineApiUrl' | 'publicUrl'
>

export interface AppOptions {
  config: AppConfig
  database: Database
  /** Shared by all callers of the platform, so that they share one rate limit. */
  lineApi?: LineApi
  idTokens?: IdTokens
  /** Receives log lines; standard output by default. */
  log?: DestinationStream | undefined
  now?: () => number
  metrics?: Metrics | null
  isClosing?: () => boolean
  /** Records erasures outside of the database. Null, the default: none is configured. */
  erasureLedger?: ErasureLedger | null
  /** Receives committed deliveries for endpoints. By default, they are sent by the next poll. */
  handOver?: HandOver
  trackingBudgets?: TrackingBudgets
}

/** Creates the HTTP server, which does not listen yet. Closing it does not close the database. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { config, database, now = Date.now, isClosing = () => false, handOver = () => undefined } = options
  const {
    lineApi = new LineApi(config.lineApiUrl),
    log = pino.destination(1),
    erasureLedger = null,
    trackingBudgets = TRACKING_BUDGETS,
  } = options
  const { idTokens = new IdTokens(config.lineApiUrl, now) } = options
  const app = createServer(config, log)
  logRequests(app, log)
  options.metrics?.measureRequests(app)
  const stopLogging = logFacts(app.log)
  decorateWithCaller(app)
  const spareSigned = await limitRate(app, config.rateLimit, config.redisUrl)
  requireWellFormed(app)
  await collectRouteSchemas(app, { title: name, version }, SCHEMAS, {
    ...endpointWebhooks,
    ...notificationWebhooks,
  })

  const counts = new DeliveryCounts(database)
  const guard = requireApiClient(database)
  app.addHook('onClose', async () => {
    stopLogging()
    await counts.close()
  })

  healthRoutes(app, { name, version, database, isClosing }) // GET /api, GET /api/health
  // POST /api/line/:id, POST /api/Line/:id, POST /api/mbox/callback/:oaHash, POST /api/tracking. Client libraries append a path:
  // POST /api/tracking/:call, /v1/:call, /api/s/:call, /api/s/s2s/:call and /beacon/v1/batch below it; OPTIONS of all of them
  for (const source of SOURCES) {
    const intake = new Intake(database, source, counts, handOver)
    const bodies = new BodyBudget(source.share.maxBodyBytes)
    source.addRoutes(app, {
      source,
      database,
      intake,
      bodies,
      counts,
      spareSigned,
      trackingBudgets,
      idTokens,
      now,
    })
  }

  // Protected by the three headers.
  listRoute(app, database, guard) //   GET    /api/audience
  updateRoute(app, database, guard) // PUT    /api/audience/:id
  eraseRoute(app, database, guard, now, erasureLedger) // DELETE /api/audience/:id
  verifyRoute(
    app,
    {
      ...{
        database,
        lineApi,
        publicUrl: config.publicUrl,
        webhookPaths: deliveryPaths,
        now,
        channelName: LINE,
      },
      writeCounts: () => counts.write(),
    },
    guard,
  ) //                                 POST   /api/line-oa/verify

  await documentRoutes(app) // GET /openapi.json, GET /docs

  refuseUnknownRoutes(app)
  return app
}
