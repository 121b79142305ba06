/** The service exits in time even if its database never answers again, or its port is in use. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, inject, it, onTestFinished } from 'vitest'
import { TcpProxy } from '../../tools/simulator/tcp-proxy.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { becomesWell, runProgramAsync, spawnService, temporaryDirectory } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

it('exits with 0 within 10 s of SIGTERM while its database is silent', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const { host, port } = inject('postgres')
  const proxy = new TcpProxy({ path: `${host}/.s.PGSQL.${port}` })
  onTestFinished(() => proxy.close())
  const proxyPort = await proxy.listen()
  proxy.open()
  const service = await spawnService({
    DATABASE_URL: `postgres://${connection.user}@127.0.0.1:${proxyPort}/${connection.database}`,
  })
  await becomesWell(service.url)
  // A refused delivery is counted in memory first and written later.
  const forged = signedDelivery({ ...tenant, channelSecret: 'another secret' }, [])
  await fetch(service.url + forged.path, forged.init)
  proxy.silence()
  const pending = fetch(`${service.url}/api/audience`, { headers: tenant.headers }).catch(() => null)
  expect((await fetch(`${service.url}/api/health`)).status).toBe(503)
  const signalledAtMs = performance.now()
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
  expect(performance.now() - signalledAtMs).toBeLessThan(10_000)
  await pending
})

it('exits with 1 and stops its embedded database when its port is in use', async () => {
  const other = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void other.close())
  await once(other, 'listening')
  const { port } = other.address() as AddressInfo
  const env = { DATA_DIR: temporaryDirectory(), PORT: String(port) }
  const { status, stdout, stderr } = await runProgramAsync(['serve'], env)
  expect([status, stderr]).toEqual([
    1,
    expect.stringContaining(`PORT ${port} on 127.0.0.1 is already in use`),
  ])
  expect(stdout).not.toContain('maintenance')
})
