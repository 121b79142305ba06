/** The one place where parts are joined; every route is named here. */
import type { FastifyInstance } from 'fastify'
import type { DestinationStream } from 'pino'
import { decorateWithCaller, requireApiClient } from './access/api-client.ts'
import type { AccountId } from './accounts/account.ts'
import { type VerifyParts, verifyRoute } from './accounts/verify-route.ts'
import { eraseRoute } from './audience/erase.ts'
import { listRoute } from './audience/list.ts'
import { updateRoute } from './audience/update.ts'
import { componentSchemas } from './component-schemas.ts'
import type { Config } from './config.ts'
import { documentRoutes } from './http/documents.ts'
import { healthRoutes } from './http/health.ts'
import type { Metrics } from './http/metrics.ts'
import { collectRouteSchemas } from './http/openapi.ts'
import { limitRate } from './http/rate-limit.ts'
import { answerUnknownRoutes, createServer, requireWellFormed } from './http/server.ts'
import { traceRequests } from './http/trace-requests.ts'
import type { Source } from './intake/event.ts'
import { deliveryPaths, LINE } from './intake/line/channel.ts'
import { lineRoutes } from './intake/line/routes.ts'
import { mboxRoutes } from './intake/mbox/routes.ts'
import { Intake } from './intake/receive.ts'
import { RefusedDeliveries } from './intake/refused-deliveries.ts'
import { trackingRoutes } from './intake/tracking/routes.ts'
import { LineApi } from './line-api/client.ts'
import { serviceName as name, serviceVersion as version } from './package.ts'
import type { Database } from './postgres/database.ts'

export type AppConfig = Pick<
  Config,
  'logLevel' | 'trustProxy' | 'rateLimit' | 'redisUrl' | 'lineApiUrl' | 'publicUrl' | 'tracing'
>

export interface AppOptions {
  config: AppConfig
  /** null: started without a database */
  database: Database | null
  /** shared with whoever else asks the platform, so that all keep one pace */
  lineApi?: LineApi
  /** where log lines go, standard output if none is given */
  log?: DestinationStream | undefined
  now?: () => number
  /** null, or left out: nobody looks */
  metrics?: Metrics | null
  isClosing?: () => boolean
}

/** The service as an HTTP server that does not listen yet. Closing it does not close the database. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { config, database, now = Date.now, isClosing = () => false } = options
  const app = createServer(config, options.log)
  const { metrics = null, lineApi = new LineApi(config.lineApiUrl) } = options
  metrics?.measureRequests(app)
  if (config.tracing) traceRequests(app)
  decorateWithCaller(app)
  const onSigned = await limitRate(app, config.rateLimit, config.redisUrl)
  requireWellFormed(app)
  await collectRouteSchemas(app, { title: name, version }, componentSchemas)

  const intake =
    database &&
    new Intake(
      database,
      (error) => app.log.error({ fault: (error as Error).name }, 'an event was kept unapplied'),
      metrics,
    )
  const refused = database && new RefusedDeliveries(database)
  app.addHook('onClose', async () => refused?.close())
  const onRefused = (accountId: AccountId, source: Source) => refused?.note(accountId, source)
  const guard = requireApiClient(database)
  const verifyParts: VerifyParts = {
    database,
    lineApi,
    publicUrl: config.publicUrl,
    webhookPaths: deliveryPaths,
    now,
    channelName: LINE,
    onOutcome: (outcome) => metrics?.verified(outcome),
  }

  // public
  healthRoutes(app, { name, version, database, isClosing }) //      GET    /api, GET /api/health
  lineRoutes(app, { database, intake, onSigned, onRefused, now }) // POST   /api/line/:id, POST /api/Line/:id
  mboxRoutes(app, { database, intake, onSigned, onRefused, now }) // POST   /api/mbox/callback/:oaHash
  trackingRoutes(app, { database, intake, now }) //                 POST   /api/tracking

  // protected by the three headers
  listRoute(app, database, guard) //                                GET    /api/audience
  updateRoute(app, database, guard) //                              PUT    /api/audience/:id
  eraseRoute(app, database, guard) //                               DELETE /api/audience/:id
  verifyRoute(app, verifyParts, guard) //                           POST   /api/line-oa/verify

  // beside the API
  await documentRoutes(app) //                                      GET    /openapi.json, GET /docs

  answerUnknownRoutes(app)
  return app
}
