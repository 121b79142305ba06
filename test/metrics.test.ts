/** A scrape of /metrics that fails. console-process.test.ts, faults/process.test.ts and faults/workers.test.ts scrape services. */
import { expect, it, onTestFinished } from 'vitest'
import { serveMetrics } from '../src/observability/metrics-page.ts'

it('logs the first failed scrape of an outage, and answers 503 until it ends', async () => {
  let fault: Error | null = null
  const page = {
    contentType: 'text/plain',
    metrics: async () => {
      if (fault) throw fault
      return 'up 1\n'
    },
  }
  const logged: unknown[] = []
  const log = {
    warn: (...line: unknown[]) => void logged.push(line),
    info: (line: string) => void logged.push(line),
  }
  const server = await serveMetrics(page, '127.0.0.1', 0, log)
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/metrics`
  const statusOf = () => fetch(url).then(({ status }) => status)
  for (let outage = 0; outage < 2; outage += 1) {
    fault = new TypeError('no gauge')
    expect([await statusOf(), await statusOf()]).toEqual([503, 503])
    fault = null
    expect([await statusOf(), await statusOf()]).toEqual([200, 200])
  }
  const failed = [{ fault: 'TypeError', reason: 'no gauge' }, 'the metrics cannot be scraped']
  const again = 'the metrics can be scraped again'
  expect(logged).toEqual([failed, again, failed, again])
})
