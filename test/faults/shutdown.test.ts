/** The service exits in time even if its database never answers again, or its port is in use. */
import { expect, it } from 'vitest'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { serveForTest } from '../support/http-server.ts'
import { runProgramAsync, startHealthy, temporaryDirectory } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'
import { startProxy } from '../support/tcp-proxy.ts'

it('exits with 0 within 10 s of SIGTERM while its database is silent', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const { proxy, url } = await startProxy(connection)
  proxy.open()
  const service = await startHealthy({ DATABASE_URL: url })
  // A refused delivery is counted in memory first and written later.
  await sendDelivery(service.url, { ...tenant, channelSecret: 'another secret' }, [])
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
  const { port } = new URL(await serveForTest(() => undefined))
  const env = { DATA_DIR: temporaryDirectory(), PORT: port }
  const { status, stdout, stderr } = await runProgramAsync(['serve'], env)
  expect([status, stderr]).toEqual([
    1,
    expect.stringContaining(`PORT ${port} on 127.0.0.1 is already in use`),
  ])
  expect(stdout).not.toContain('maintenance')
})
