/** Outgoing webhooks while processes and receivers fail: nothing is missing, little is sent twice. The soak kills PostgreSQL, too. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { Receiver } from '../../tools/load/receiver.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { FailoverLoad } from '../support/failover-load.ts'
import { serveForTest } from '../support/http-server.ts'
import { NO_LIMITS, startHealthy } from '../support/process.ts'
import { startRefusing } from '../support/refusals.ts'

/** Ten senders with a delivery of up to three events each. */
const IN_FLIGHT_MAX = 30

/** Instances under load, with an endpoint that receives all events. */
async function startUnderLoad(instances: number) {
  const { database, env } = await createTestDatabase()
  const tenant = await addTenant(database)
  const faults: Error[] = []
  const receiver = new Receiver((error) => faults.push(error))
  onTestFinished(() => receiver.close())
  const addEndpoint = (url: string) =>
    database.query('insert into endpoint (channel_oa_id, url, allow_private_network) values ($1, $2, true)', [
      tenant.accountId,
      url,
    ])
  await addEndpoint(`${await receiver.start()}/line/0`)
  const start = () => startHealthy({ ...NO_LIMITS, ...env })
  const services = await Promise.all(Array.from({ length: instances }, start))
  const urls = services.map(({ url }) => url)
  const load = new FailoverLoad(urls, tenant, database, { lineEvents: [] })
  onTestFinished(() => load.client.close())
  receiver.books.push(load.book)
  load.start()
  const compare = async () => {
    await load.finish()
    expect(await load.compare()).toEqual([])
    expect(faults).toEqual([])
  }
  return { database, services, start, load, receiver, addEndpoint, compare }
}

it('loses nothing when the service is killed under load, with one endpoint slow and one down', async () => {
  const { services, start, load, receiver, addEndpoint, compare } = await startUnderLoad(1)
  const slow = await serveForTest((request, response) => {
    request.resume()
    setTimeout(() => response.end(), 500)
  })
  await addEndpoint(`${slow}/`)
  await addEndpoint('http://127.0.0.1:9/')
  let [service] = services
  for (let kill = 0; kill < 3; kill += 1) {
    await sleep(2_000)
    service?.child.kill('SIGKILL')
    await service?.exited
    load.client.takeOutOfService(service?.url as string)
    service = await start()
    load.client.putIntoService(service.url)
  }
  await sleep(1_000)
  await compare()
  // A kill repeats at most what was in flight.
  expect(receiver.received.repeated).toBeLessThan(3 * IN_FLIGHT_MAX)
})

it('sends nothing twice from two instances in normal operation', async () => {
  const { database, receiver, compare } = await startUnderLoad(2)
  await sleep(3_000)
  // A backlog that both instances find.
  await database.query(`update endpoint set status = 'paused'`)
  await sleep(2_000)
  await database.query(`update endpoint set status = 'active'`)
  await sleep(1_000)
  await compare()
  expect(receiver.received.repeated).toBe(0)
})

it.each(['line', 'members'] as const)(
  'sends to a %s endpoint at once behind 1,000 refused deliveries, while all of them are retried, and after a restart',
  async (format) => {
    const { expectAtOnce, makeDue, restart } = await startRefusing(format, 1_000)
    await expectAtOnce('Ufirst')
    await makeDue()
    await expectAtOnce('Usecond')
    await restart()
    await makeDue()
    await expectAtOnce('Uthird')
  },
)
