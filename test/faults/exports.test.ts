/** Clients that export more, slower or more rudely than the service can bear: others are served meanwhile. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { addCredentials, createTestDatabase, type Tenant } from '../support/database.ts'
import { type Service, setUpService, startObserved } from '../support/service.ts'
import { addLargeTenant, busySessions, openStream, sendHead } from '../support/stream.ts'
import { listPage } from '../support/walk.ts'

const SECONDS = 4

/** Runs `attack` again and again in `parallel` loops, while `meanwhile` runs in another one. */
async function attackWhile(parallel: number, attack: () => Promise<void>, meanwhile: () => Promise<void>) {
  const endsAtMs = performance.now() + SECONDS * 1000
  const loop = async (work: () => Promise<void>) => {
    while (performance.now() < endsAtMs) await work()
  }
  await Promise.all([...Array.from({ length: parallel }, () => loop(attack)), loop(meanwhile)])
}

async function expectServed(service: Service, tenant: Tenant): Promise<void> {
  expect((await service.call('GET', '/api/health')).status).toBe(200)
  expect((await listPage(service, tenant, '')).status).toBe(200)
  await sleep(100)
}

it('leaves no session behind by 16 aborted exports per second', async () => {
  const { database, service, tenant } = await setUpService()
  const large = await addLargeTenant(database)
  const keys = [large]
  for (let i = 1; i < 16; i += 1) {
    keys.push({ ...large, ...(await addCredentials(database, large.accountId, large.organizationId)) })
  }
  const turns = keys.values()
  let most = 0
  await attackWhile(
    16,
    async () => {
      const client = sendHead(service, turns.next().value ?? large)
      await Promise.race([once(client, 'readable'), sleep(500)])
      client.destroy()
      await sleep(500)
    },
    async () => {
      await expectServed(service, tenant)
      most = Math.max(most, await busySessions(database))
    },
  )
  // Four streams, and what the other tenant asks at that moment.
  expect(most).toBeLessThanOrEqual(6)
  await expect.poll(() => busySessions(database)).toBe(0)
  expect((await service.call('GET', '/api/audience?userId=U1', csvFor(large))).status).toBe(200)
})

const csvFor = ({ headers }: Tenant) => ({ headers: { ...headers, accept: 'text/csv' } })

it('cuts off a client that reads 3.7 KB/s, without a snapshot meanwhile, and not one that pauses for 20 s', async () => {
  const { database } = await createTestDatabase()
  const { seen, noted } = await startObserved(database)
  const large = await addLargeTenant(database)
  const other = await addCredentials(database, large.accountId, large.organizationId)
  const paused = await openStream(seen, other)
  const slow = sendHead(seen, large).pause()
  const reading = setInterval(() => slow.read(Math.min(3_700, slow.readableLength)), 1_000)
  await sleep(20_000)
  expect(await busySessions(database)).toBe(0)
  let bytes = 0
  for await (const chunk of paused) bytes += chunk.length
  expect(paused.complete).toBe(true)
  expect(bytes).toBeGreaterThan(40_000_000)
  const statuses = () =>
    noted()
      .filter(({ msg }) => msg === 'request')
      .map(({ status }) => status)
  // Two minutes from now, at 3.7 KB/s after the socket buffers are full.
  await expect.poll(() => statuses(), { timeout: 120_000 }).toHaveLength(2)
  expect(statuses()).toEqual([200, 408])
  clearInterval(reading)
  slow.destroy()
  await seen.app.close()
})
