/** Which request gets the next connection of a share. */
import { expect, it } from 'vitest'
import { type Claimant, Turns } from '../../src/postgres/pool/turns.ts'

const A: Claimant = { accountId: 1n, organizationId: 1n }
const B: Claimant = { accountId: 3n, organizationId: 3n }
const OWN: Claimant = { accountId: null, organizationId: null }

/** Takes turns by name, notes the order in which they start, and ends the oldest of a name. */
function setUp(size: number, isDivided = true) {
  const turns = new Turns('test', size, isDivided)
  const started: string[] = []
  const ends = new Map<string, Array<() => void>>()
  const take = async (name: string, claimant: Claimant) => {
    void turns.take(claimant).then((end) => {
      started.push(name)
      ends.set(name, [...(ends.get(name) ?? []), end])
    })
    // A turn that starts immediately has started when the microtasks are done.
    await new Promise(setImmediate)
  }
  const end = async (name: string) => {
    ends.get(name)?.shift()?.()
    await new Promise(setImmediate)
  }
  return { turns, started, take, end }
}

it('gives an account two turns, and the next one when a turn of its own ends', async () => {
  const { started, take, end, turns } = setUp(8)
  for (const name of ['a1', 'a2', 'a3']) await take(name, A)
  expect(started).toEqual(['a1', 'a2'])
  expect(turns.waitingCount).toBe(1)
  await end('a1')
  expect(started).toEqual(['a1', 'a2', 'a3'])
  await end('a2')
  await end('a3')
})

it('lets an account without a turn go before the second turn of another, and equal accounts alternate', async () => {
  const { started, take, end } = setUp(2)
  await take('b', B)
  await take('own', OWN)
  for (const name of ['a1', 'a2', 'a3']) await take(name, A)
  for (const name of ['b1', 'b2']) await take(name, B)
  await end('own')
  expect(started.slice(2)).toEqual(['a1'])
  await end('b')
  await end('a1')
  await end('b1')
  await end('a2')
  await end('b2')
  expect(started.slice(2)).toEqual(['a1', 'b1', 'a2', 'b2', 'a3'])
  await end('a3')
})

it('keeps the order of requests in a share that is not divided', async () => {
  const { started, take, end } = setUp(1, false)
  for (const name of ['1', '2', '3']) await take(name, OWN)
  await end('1')
  await end('2')
  await end('3')
  expect(started).toEqual(['1', '2', '3'])
})
