/** A separate listener for metrics, because they are for the operator's network and not for callers. */
import { createServer, type Server } from 'node:http'
import { FatalError } from '../errors.ts'
import { systemReason } from '../system-reason.ts'

/** The content of the metrics page: one registry, or the merged registries of several processes. */
interface MetricsPage {
  contentType: string
  metrics(): Promise<string>
}

interface MetricsLog {
  info: (message: string) => void
  warn: (facts: object, message: string) => void
}

/** Serves the metrics at /metrics. Throws a FatalError if the port cannot be used. */
export function serveMetrics(
  page: MetricsPage,
  host: string,
  port: number,
  log: MetricsLog,
): Promise<Server> {
  const collect = reportingOutages(page, log)
  const server = createServer(async (request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404, { 'content-type': 'text/plain' })
      response.end('METRICS_PORT of oa-audience has the path /metrics only\n')
      return
    }
    const text = await collect()
    if (text === null) response.writeHead(503).end()
    else response.writeHead(200, { 'content-type': page.contentType }).end(text)
  })
  return new Promise((resolve, reject) => {
    server.once('error', (error: Error) =>
      reject(
        new FatalError(
          `METRICS_PORT ${port} on ${host} cannot be used: ${systemReason(error)}. Set another port.`,
        ),
      ),
    )
    server.listen(port, host, () => resolve(server))
  })
}

/** Returns a function that collects the metrics, or null on failure. It logs the beginning and the end of an outage. */
function reportingOutages(page: MetricsPage, log: MetricsLog): () => Promise<string | null> {
  let isFailing = false
  return async () => {
    try {
      const text = await page.metrics()
      if (isFailing) log.info('the metrics can be scraped again')
      isFailing = false
      return text
    } catch (error) {
      // Collecting from several processes fails if one of them hangs.
      const { name, message, code } = error as Error & { code?: string }
      if (!isFailing) log.warn({ fault: name, reason: code ?? message }, 'the metrics cannot be scraped')
      isFailing = true
      return null
    }
  }
}
