import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { AccountId } from '../../src/ids.ts'
import { FairQueue, type QueuedDelivery, sliceDelivery } from '../../src/intake/fair-queue.ts'

const LIMITS = { maxEvents: 100, maxPayload: 1_000_000 }

interface NumberedDelivery extends QueuedDelivery {
  no: number
}

function delivery(
  accountId: number,
  events = 1,
  { no = 0, people = events, work = people, payloadLength = 0 }: Record<string, number> = {},
) {
  return {
    accountId: BigInt(accountId) as AccountId,
    events: Array.from({ length: events }),
    people,
    work,
    payloadLength,
    no,
  } as NumberedDelivery
}

const accountsOf = (deliveries: QueuedDelivery[]) => deliveries.map(({ accountId }) => Number(accountId))

it('a flush takes 8 people of each account in turn', () => {
  const queue = new FairQueue(LIMITS)
  for (let no = 0; no < 10; no += 1) queue.push([delivery(1)])
  for (const accountId of [2, 3, 3]) queue.push([delivery(accountId)])
  expect(accountsOf(queue.take())).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 1, 1])
  expect(queue.events).toBe(0)
})

it('a flush leaves the turn with the account whose delivery does not fit', () => {
  const queue = new FairQueue({ ...LIMITS, maxEvents: 10_000 })
  for (const accountId of [1, 2]) queue.push([delivery(accountId, 200)])
  queue.push([delivery(3)])
  expect(accountsOf(queue.take())).toEqual([3, 1])
  expect(accountsOf(queue.take())).toEqual([2])
})

it('a delivery of several slices takes turns with other accounts, slice by slice', () => {
  const queue = new FairQueue({ ...LIMITS, maxEvents: 10_000 })
  queue.push([delivery(1, 128), delivery(1, 128), delivery(1, 128)])
  queue.push([delivery(2)])
  expect(accountsOf(queue.take())).toEqual([2, 1])
  expect(accountsOf(queue.take())).toEqual([1, 1])
})

it('a delivery of several slices costs as much for its payload as for its people', () => {
  const queue = new FairQueue({ maxEvents: 10_000, maxPayload: 10_000_000 })
  queue.push([1, 2, 3].map(() => delivery(1, 1, { payloadLength: 512 * 1024 })))
  for (let no = 0; no < 100; no += 1) queue.push([delivery(2)])
  expect(accountsOf(queue.take()).filter((accountId) => accountId === 2)).toHaveLength(100)
})

it('a delivery of several slices costs as much for each condition of its account as for a person, if endpoints receive it', () => {
  const admission = {
    accountId: 1n,
    credentialsVersion: 1n,
    source: { name: 'line', isProven: true },
    conditions: 20,
  }
  const events = [
    { otherUserIds: [], payload: '' },
    { otherUserIds: ['U1'], payload: '' },
  ]
  const sliced = (forwarded: object | null) =>
    sliceDelivery(admission, events as never, forwarded as never).map(({ people, work }) => ({
      people,
      work,
    }))
  expect(sliced({})).toEqual([{ people: 3, work: 43 }])
  expect(sliced(null)).toEqual([{ people: 3, work: 3 }])
  const queue = new FairQueue(LIMITS)
  for (const accountId of [1, 1]) queue.push([delivery(accountId, 1, { work: 21 })])
  for (const accountId of [2, 2, 2]) queue.push([delivery(accountId)])
  expect(accountsOf(queue.take())).toEqual([2, 2, 2, 1, 1])
})

it('a delivery of several slices is queued as a whole or not at all', () => {
  const queue = new FairQueue(LIMITS)
  expect(queue.push([delivery(1, 60), delivery(1, 60)])).toBe(false)
  expect(queue.events).toBe(0)
})

it('a full queue refuses an account that holds half of it, and accepts others', () => {
  const queue = new FairQueue(LIMITS)
  const pushed = Array.from({ length: 100 }, () => queue.push([delivery(1)]))
  expect(pushed.filter(Boolean)).toHaveLength(50)
  expect(queue.push([delivery(2, 25)])).toBe(true)
  expect(queue.push([delivery(1)])).toBe(false)
  expect(queue.push([delivery(3)])).toBe(true)
})

it('hands out every accepted delivery once, in the order of its account, and never exceeds its limits', () => {
  const step = fc.oneof(
    fc.record({ accountId: fc.integer({ min: 1, max: 5 }), events: fc.integer({ min: 1, max: 60 }) }),
    fc.constant('take' as const),
  )
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const queue = new FairQueue(LIMITS)
      const accepted: NumberedDelivery[] = []
      const taken: NumberedDelivery[] = []
      for (const [no, action] of steps.entries()) {
        if (action === 'take') taken.push(...(queue.take() as NumberedDelivery[]))
        else {
          const next = delivery(action.accountId, action.events, { no })
          if (queue.push([next])) accepted.push(next)
        }
        expect(queue.events).toBeLessThanOrEqual(LIMITS.maxEvents)
      }
      for (let turns = accepted.length; queue.events > 0 && turns > 0; turns -= 1)
        taken.push(...(queue.take() as NumberedDelivery[]))
      for (const account of [1, 2, 3, 4, 5]) {
        const ofAccount = (all: NumberedDelivery[]) =>
          all.filter(({ accountId }) => Number(accountId) === account).map(({ no }) => no)
        expect(ofAccount(taken)).toEqual(ofAccount(accepted))
      }
    }),
  )
})
