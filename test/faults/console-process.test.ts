/** The console of a running service: its start, its port and its end. */
import { createServer } from 'node:net'
import { expect, inject, it, onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { TcpProxy } from '../../tools/simulator/tcp-proxy.ts'
import { CONSOLE_TOKEN, signedIn } from '../support/console.ts'
import { createTestDatabase, urlOf } from '../support/database.ts'
import { becomesWell, runProgramAsync, spawnService } from '../support/process.ts'

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

it('serves console and metrics on their own ports with several hosts and replicas, and ends open streams at a shutdown', async () => {
  const [port, metricsPort] = [await freePort(), await freePort()]
  const { connection } = await createTestDatabase()
  const hosts = await twoHosts()
  const env = {
    DATABASE_URL: several(hosts, connection.database),
    DATABASE_READ_URL: `postgres://postgres@${hosts}/${connection.database}`,
    CONSOLE_PORT: String(port),
    METRICS_PORT: String(metricsPort),
    CONSOLE_TOKEN,
    LOG_LEVEL: 'trace',
  }
  const service = await spawnService(env)
  await becomesWell(service.url)
  const operator = await signedIn(`http://127.0.0.1:${port}`)
  expect((await operator.get('/api/fleet')).json).toEqual({ fleet: [], next: null })
  const scrape = await fetch(`http://127.0.0.1:${metricsPort}/metrics`)
  const metrics = await scrape.text()
  expect(scrape.status).toBe(200)
  for (const line of [
    'oa_audience_database_state{state="up"} 1\n',
    'oa_audience_database_sessions{pool="replica-clients",state="waiting"} 0\n',
    'oa_audience_database_sessions{pool="replica-console",state="total"}',
  ]) {
    expect(metrics).toContain(line)
  }
  const stoppedAt = performance.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - stoppedAt).toBeLessThan(10_000)
  const [, session = ''] = operator.cookie.split('=')
  for (const secret of [CONSOLE_TOKEN, session]) expect(service.output()).not.toContain(secret)
})

it('does not start on a port that is in use', async () => {
  const other = createServer()
  onTestFinished(() => void other.close())
  const port = await freePort()
  await new Promise<void>((resolve) => other.listen(port, '127.0.0.1', resolve))
  const env = {
    DATABASE_URL: urlOf((await createTestDatabase()).connection),
    CONSOLE_PORT: String(port),
    CONSOLE_TOKEN,
  }
  const taken = await runProgramAsync(['serve'], env)
  expect([taken.status, taken.stderr]).toEqual([
    1,
    expect.stringContaining(`CONSOLE_PORT ${port} on 127.0.0.1 cannot be used`),
  ])
})
