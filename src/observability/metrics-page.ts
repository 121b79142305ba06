/** The listener of the metrics: they are for the operator's network, not for callers. */
import { createServer, type Server } from 'node:http'
import { FatalError } from '../errors.ts'

/** The content of the metrics page: one registry, or the registries of several processes together. */
export interface MetricsPage {
  contentType: string
  metrics(): Promise<string>
}

/** Serves the metrics at /metrics. Throws a FatalError if the port cannot be used. */
export function serveMetrics(page: MetricsPage, host: string, port: number): Promise<Server> {
  const server = createServer(async (request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end()
      return
    }
    // The registries of several processes reject if one process hangs.
    const text = await page.metrics().catch(() => null)
    if (text === null) response.writeHead(503).end()
    else response.writeHead(200, { 'content-type': page.contentType }).end(text)
  })
  return new Promise((resolve, reject) => {
    server.once('error', (error: Error & { code?: string }) =>
      reject(
        new FatalError(`METRICS_PORT ${port} on ${host} cannot be used (${error.code}). Set another port.`),
      ),
    )
    server.listen(port, host, () => resolve(server))
  })
}
