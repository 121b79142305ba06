/** The service exits in time even if its database never answers again. */
import { expect, inject, it, onTestFinished } from 'vitest'
import { TcpProxy } from '../../tools/simulator/tcp-proxy.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { becomesWell, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

it('exits with 0 within 10 s of SIGTERM while its database is silent', async () => {
  const { database, connection } = await createTestDatabase()
  onTestFinished(() => database.close())
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
