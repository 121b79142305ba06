/** The HTTP server of the console: pages, sessions and the JSON for the pages. Its port does not serve the API. */
import cookie from '@fastify/cookie'
import type { FastifyInstance } from 'fastify'
import { PACKAGE_ROOT } from '../config/package.ts'
import { systemReason } from '../config/system-reason.ts'
import { isOwnUrl } from '../endpoints/address.ts'
import { EndpointTester } from '../endpoints/test-delivery.ts'
import { FatalError } from '../errors.ts'
import { createServer, requireWellFormed } from '../http/server.ts'
import { Streamer } from '../http/streamer.ts'
import { toJson } from '../ids.ts'
import { logRequests } from '../observability/log.ts'
import { OPERATIONS } from '../operations/all.ts'
import { toInputError } from '../operations/constraint-sentences.ts'
import type { Queryable } from '../postgres/statement.ts'
import { downloadRoutes } from './download-routes.ts'
import { operationRoutes } from './operation-routes.ts'
import { addPages, addSecurityText, compressLargeResponses, setSecurityHeaders } from './pages.ts'
import { type ConsoleOptions, limitCounts } from './parts.ts'
import { searchRoutes } from './search-routes.ts'
import { createSessions, requireRoles, requireSameOrigin } from './session.ts'
import { signInRoutes } from './sign-in-routes.ts'
import { uploadRoutes } from './upload-routes.ts'

export async function createConsole(options: ConsoleOptions): Promise<FastifyInstance> {
  const app = createServer(options.config, options.log)
  let changedAtMs = 0
  const reads: Queryable = {
    secretKeys: options.database.console.secretKeys,
    query: (statement, values) => options.database.reads.console(changedAtMs).query(statement, values),
  }
  const readsFromNow = () => options.database.reads.console(performance.now())
  const database = options.database.console
  const sessions = createSessions({ ...options, database })
  const { requireRole } = sessions
  const counted = limitCounts()
  const services = {
    counted,
    now: options.now,
    ownUrls: options.ownUrls,
    channelTester: options.channelTester,
    canEmail: options.config.smtpUrl !== null,
    endpointTester: new EndpointTester((url) => isOwnUrl(url, options.ownUrls()), options.route),
    lineApi: options.verifier.lineApi,
    verifier: options.verifier,
    erasureLedger: async () => options.erasureLedger,
    baseUrl: options.config.publicUrl ?? '',
  }
  const parts = { ...options, database, reads, readsFromNow, streamer: new Streamer(), counted, requireRole }
  logRequests(app, parts.log)
  app.setReplySerializer(toJson)
  compressLargeResponses(app)
  setSecurityHeaders(app)
  requireWellFormed(app)
  requireSameOrigin(app)
  await app.register(cookie)
  signInRoutes(app, parts, sessions)
  await app.register(
    async (api) => {
      requireRoles(api, sessions)
      api.addHook('onSend', async ({ method }) => {
        if (method === 'POST') changedAtMs = performance.now()
      })
      // A value that a constraint refuses is the fault of the request.
      api.setErrorHandler((error) => {
        throw toInputError(error)
      })
      operationRoutes(api, parts, OPERATIONS, services) // what src/operations/ defines
      searchRoutes(api, parts)
      downloadRoutes(api, parts)
      uploadRoutes(api, parts)
    },
    { prefix: '/api' },
  )
  addSecurityText(app, options.config.consoleUrl, options.now)
  await addPages(app, parts.pages ?? new URL('dist/web/', PACKAGE_ROOT))
  return app
}

export async function listenForConsole(app: FastifyInstance, host: string, port: number): Promise<void> {
  try {
    await app.listen({ host, port, listenTextResolver: (address) => `console on ${address}` })
  } catch (error) {
    throw new FatalError(
      `CONSOLE_PORT ${port} on ${host} cannot be used: ${systemReason(error)}. Set another port.`,
    )
  }
}
