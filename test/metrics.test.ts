/** A scrape of /metrics that fails. console-process.test.ts, faults/process.test.ts and faults/workers.test.ts scrape services. */
import { expect, it, onTestFinished } from 'vitest'
import { serveMetrics } from '../src/observability/metrics.ts'

it('logs a failed scrape, and answers 503 until one succeeds', async () => {
  let fault: Error | null = new TypeError('no gauge')
  const page = {
    contentType: 'text/plain',
    metrics: async () => {
      if (fault) throw fault
      return 'up 1\n'
    },
  }
  const logged: unknown[] = []
  const log = { warn: (...line: unknown[]) => void logged.push(line) }
  const server = await serveMetrics(page, '127.0.0.1', 0, log)
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/metrics`
  const statusOf = () => fetch(url).then(({ status }) => status)
  expect(await statusOf()).toBe(503)
  fault = null
  expect(await statusOf()).toBe(200)
  expect(logged).toEqual([[{ fault: 'TypeError', reason: 'no gauge' }, 'the metrics cannot be scraped']])
})
