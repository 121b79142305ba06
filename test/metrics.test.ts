/** A scrape of /metrics. process.test.ts scrapes simpler configurations, and faults/workers.test.ts several processes. */
import { expect, inject, it, onTestFinished } from 'vitest'
import { serveMetrics } from '../src/observability/metrics-page.ts'
import { freePort } from '../tools/prove/service.ts'
import { TcpProxy } from '../tools/simulator/tcp-proxy.ts'
import { createTestDatabase } from './support/database.ts'
import { becomesWell, spawnService } from './support/process.ts'

/** Addresses of two hosts that lead to the test's server. */
async function twoHosts(): Promise<string> {
  const { host, port } = inject('postgres')
  const proxies = [1, 2].map(() => new TcpProxy({ path: `${host}/.s.PGSQL.${port}` }))
  onTestFinished(() => Promise.all(proxies.map((proxy) => proxy.close())).then(() => undefined))
  const ports = await Promise.all(proxies.map((proxy) => proxy.listen()))
  for (const proxy of proxies) proxy.open()
  return ports.map((each) => `127.0.0.1:${each}`).join()
}

const several = (hosts: string, database: string) =>
  `postgres://postgres@${hosts}/${database}?target_session_attrs=read-write`

it('answers a scrape of a service with several hosts, replicas and a console', async () => {
  const { database, connection } = await createTestDatabase()
  onTestFinished(() => database.close())
  const hosts = await twoHosts()
  const port = await freePort()
  const service = await spawnService({
    DATABASE_URL: several(hosts, connection.database),
    DATABASE_READ_URL: `postgres://postgres@${hosts}/${connection.database}`,
    ...{ CONSOLE_PORT: '0', CONSOLE_TOKEN: 'a-token-of-the-console-for-tests' },
    METRICS_PORT: String(port),
  })
  await becomesWell(service.url)
  const response = await fetch(`http://127.0.0.1:${port}/metrics`)
  const text = await response.text()
  expect(response.status).toBe(200)
  for (const line of [
    'oa_audience_database_state{state="up"} 1\n',
    'oa_audience_database_sessions{share="replica-clients",state="waiting"} 0\n',
    'oa_audience_database_sessions{share="replica-console",state="total"} 0\n',
  ]) {
    expect(text).toContain(line)
  }
  expect(service.output()).not.toContain('scraped')
})

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
