/** Which request gets the next connection of a share. */
import { expect, it } from 'vitest'
import { type Claimant, Turns } from '../../src/postgres/pool/turns.ts'

const A: Claimant = { accountId: 1n, organizationId: 1n }
const B: Claimant = { accountId: 3n, organizationId: 3n }
const OWN: Claimant = { accountId: null, organizationId: null }

/** Takes two turns at a time by name, notes the order in which they start, and ends the oldest of a name. */
function setUp() {
  const turns = new Turns('test', 2, true)
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
  return { started, take, end }
}

it('lets an account without a turn go before the second turn of another, and equal accounts alternate', async () => {
  const { started, take, end } = setUp()
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
