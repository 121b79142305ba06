/** Which deliveries start, and how many wait: endpoints that fail, are slow or are silent leave room for others. */
import { expect, it } from 'vitest'
import { EndpointState, Queue } from '../../src/endpoints/queue.ts'
import type { LeasedDelivery } from '../../src/intake/flush.ts'

const itemOf = (endpointId: number, id = 0, attempts = 1): LeasedDelivery => ({
  id: BigInt(id),
  accountId: BigInt(endpointId),
  endpointId: BigInt(endpointId),
  attempts,
})

function startAll(queue: Queue<LeasedDelivery>) {
  const started = []
  for (let next = queue.start(); next !== null; next = queue.start()) started.push(next)
  return started
}

/** An endpoint that has failed so often in a row at the time 0. */
function failing(failures: number): EndpointState<LeasedDelivery> {
  const state = new EndpointState<LeasedDelivery>()
  for (let no = 0; no < failures; no += 1) state.note(false, 10, 0)
  return state
}

it('an endpoint is probed with one delivery at a time during an outage, after pauses that double up to a minute', () => {
  const pauses = Array.from({ length: 9 }, (_, probes) => {
    const state = failing(5 + probes)
    return [999, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 59_999, 60_000].find((ms) => state.room(ms) > 0)
  })
  expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000])
  const state = failing(5)
  expect(state.room(1_000)).toBe(1)
  state.inFlight = 1
  expect(state.room(1_000)).toBe(0)
  expect(state.inFlightMax).toBe(1)
})

it('an endpoint has recovered when it is up after an outage, and only then', () => {
  expect(failing(5).note(true, 10, 500)).toBe(true)
  expect(failing(4).note(true, 10, 500)).toBe(false)
  const state = failing(6)
  state.note(true, 10, 500)
  expect([state.room(700), state.room(700, 1)]).toEqual([768, 1_024])
})

it('the queue starts first attempts and retries in turn, each in their order', () => {
  const queue = new Queue<LeasedDelivery>()
  queue.restore(1n, true)
  for (const [id, attempts] of [2, 2, 2, 2, 1, 1].entries()) queue.add(itemOf(1, id, attempts), 0)
  expect(startAll(queue).map(({ item }) => Number(item.id))).toEqual([4, 0, 5, 1, 2, 3])
})

it('the queue keeps a quarter of its memory from claims, for deliveries that a flush hands over', () => {
  const queue = new Queue<LeasedDelivery>()
  queue.restore(1n, true)
  const state = queue.stateOf(1n)
  while (state.room(0) > 0) queue.add(itemOf(1, 0, 2), 0)
  let handedOver = 0
  while (queue.add(itemOf(1), 0)) handedOver += 1
  expect(handedOver).toBe(256)
})

it('the queue leaves half of the requests to proven endpoints, however many others wait', () => {
  const queue = new Queue<LeasedDelivery>()
  for (let no = 1; no <= 1_900; no += 1) queue.add(itemOf(no), 0)
  expect(startAll(queue)).toHaveLength(512)
  for (let no = 2_001; no <= 2_100; no += 1) {
    queue.restore(BigInt(no), true)
    for (let id = 0; id < 4; id += 1) queue.add(itemOf(no, id), 0)
  }
  expect(startAll(queue)).toHaveLength(400)
})

it('the queue gives one endpoint 16 requests, and each of many one in turn', () => {
  const queue = new Queue<LeasedDelivery>()
  queue.restore(1n, true)
  queue.restore(2n, true)
  for (let id = 0; id < 100; id += 1) queue.add(itemOf(1, id), 0)
  for (let id = 0; id < 100; id += 1) queue.add(itemOf(2, id), 0)
  const started = startAll(queue)
  expect(started.filter(({ item }) => item.endpointId === 1n)).toHaveLength(16)
  expect(started.slice(0, 4).map(({ item }) => item.endpointId)).toEqual([1n, 2n, 1n, 2n])
})

it('the queue gives one account as many requests as are free for all others', () => {
  const queue = new Queue<LeasedDelivery>()
  for (let no = 1; no <= 1_000; no += 1) {
    queue.restore(BigInt(no), true)
    queue.add({ ...itemOf(no), accountId: 7n }, 0)
  }
  expect(startAll(queue)).toHaveLength(512)
  queue.restore(2_000n, true)
  queue.add(itemOf(2_000), 0)
  expect(startAll(queue)).toHaveLength(1)
})
