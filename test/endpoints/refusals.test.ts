/** A refused delivery delays itself alone. Only a receiver that is down delays other deliveries. */
import { expect, it } from 'vitest'
import { isDown } from '../../src/endpoints/post.ts'
import { startRefusing } from '../support/refusals.ts'

it('sends to an endpoint at once behind refused deliveries', async () => {
  const { database, expectAtOnce } = await startRefusing('line', 12)
  await expectAtOnce('Ulater')
  await expect.poll(() => database.query('select from endpoint_delivery')).toHaveLength(12)
  // Only a recovery from an outage makes retries due.
  expect(
    await database.query(`select from endpoint_delivery where due_at < now() + interval '30 minutes'`),
  ).toEqual([])
})

it.each([
  [null, true],
  [429, true],
  [502, true],
  [503, true],
  [504, true],
  [200, false],
  [302, false],
  [400, false],
  [408, false],
  [410, false],
  [500, false],
  [501, false],
  [505, false],
])('a response %s means that the receiver is down: %s', (status, expected) => {
  expect(isDown({ status })).toBe(expected)
})
