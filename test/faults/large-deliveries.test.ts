/** A signed delivery may be large. It delays its own account, and others by no more than a slice of it. */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { measureDeliveries } from '../support/delivery-latency.ts'
import { becomesWell, spawnService } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

/** Below 1 MiB, the limit of a body. */
const EVENTS_OF_DELIVERY = 4_000
const TEXT_OF_MEBIBYTE = 'x'.repeat(1_040_000)

const manyEvents = () => Array.from({ length: EVENTS_OF_DELIVERY }, () => lineEvent('follow', randomUserId()))
const largeEvent = () => [textMessage(randomUserId(), TEXT_OF_MEBIBYTE)]

const DELIVERIES = 48

/** In a thread of its own, because sending megabytes would delay the measurement. */
const SENDER = `
  const { parentPort, workerData: { url, deliveries, senders } } = require('node:worker_threads')
  const statuses = {}
  let isStopped = false
  let sent = 0
  async function send() {
    while (!isStopped) {
      const { path, init } = deliveries[sent++ % deliveries.length]
      const response = await fetch(url + path, init)
      await response.arrayBuffer()
      statuses[response.status] = (statuses[response.status] ?? 0) + 1
    }
  }
  const sending = Promise.all(Array.from({ length: senders }, send))
  parentPort.once('message', async () => {
    isStopped = true
    await sending
    parentPort.postMessage(statuses)
  })`

/** Senders that send large deliveries until they are stopped. Returns the number of responses by status. */
function send(url: string, tenant: Tenant, senders: number, events: () => unknown[]) {
  const deliveries = Array.from({ length: DELIVERIES }, () => signedDelivery(tenant, events()))
  const worker = new Worker(SENDER, { eval: true, workerData: { url, deliveries, senders } })
  return {
    stop: async (): Promise<Record<string, number>> => {
      worker.postMessage('stop')
      const [statuses] = await once(worker, 'message')
      await worker.terminate()
      return statuses
    },
  }
}

async function measure(senders: number, events: () => unknown[]) {
  const { database, connection } = await createTestDatabase()
  const [tenant, other] = [await addTenant(database), await addTenant(database)]
  const service = await spawnService({ DATABASE_URL: urlOf(connection), RATE_LIMIT_MAX: '0' })
  await becomesWell(service.url)
  await measureDeliveries(service.url, other)
  const idleMs = await measureDeliveries(service.url, other)
  const sending = send(service.url, tenant, senders, events)
  const loadedMs = await measureDeliveries(service.url, other)
  const statuses = await sending.stop()
  console.log(
    `p95 ${idleMs.toFixed(1)} ms idle, ${loadedMs.toFixed(1)} ms beside large deliveries; responses`,
    statuses,
  )
  expect(statuses[200]).toBeGreaterThan(0)
  await database.close()
  return { idleMs, loadedMs }
}

/** Another program may slow one of two measurements that are compared. It does not slow the same one three times. */
const COMPARED = { retry: 2, timeout: 120_000 }

it('delays other accounts by a slice of a delivery of 4,000 events', COMPARED, async () => {
  const { idleMs, loadedMs } = await measure(16, manyEvents)
  expect(loadedMs).toBeLessThan(2 * idleMs + 150)
})

it('delays other accounts little by deliveries of 1 MiB', COMPARED, async () => {
  const { idleMs, loadedMs } = await measure(32, largeEvent)
  expect(loadedMs).toBeLessThan(2 * idleMs + 150)
})
