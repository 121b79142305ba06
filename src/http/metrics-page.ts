/** The page of the metrics: a separate listener, because metrics are for the operator's network and not for callers. */
import type { FastifyInstance } from 'fastify'
import { systemReason } from '../config/system-reason.ts'
import { AppError, FatalError } from '../errors.ts'
import { createServer, refuseUnknownRoutes } from './server.ts'

/** One registry, or the merged registries of several processes. */
interface MetricsPage {
  contentType: string
  metrics(): Promise<string>
}

interface MetricsLog {
  warn: (facts: object, message: string) => void
}

/** Serves the metrics at /metrics. Throws a FatalError if the port cannot be used. */
export async function serveMetrics(
  page: MetricsPage,
  host: string,
  port: number,
  log: MetricsLog,
): Promise<FastifyInstance> {
  const app = createServer({ logLevel: 'silent', trustProxy: [] })
  app.get('/metrics', async (_request, reply) => {
    try {
      return reply.type(page.contentType).send(await page.metrics())
    } catch (error) {
      // Collecting from several processes fails if one of them hangs.
      const { name, message, code } = error as Error & { code?: string }
      log.warn({ fault: name, reason: code ?? message }, 'the metrics cannot be scraped')
      throw new AppError('unavailable')
    }
  })
  refuseUnknownRoutes(app)
  await app.listen({ host, port }).catch((error) => {
    throw new FatalError(
      `METRICS_PORT ${port} on ${host} cannot be used: ${systemReason(error)}. Set another port.`,
    )
  })
  return app
}
