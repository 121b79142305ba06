/** Calls to the platform stay below its rate limit, and a call that would wait too long is refused. */
import { expect, it } from 'vitest'
import { RateLimiter } from '../../src/line-api/tokens.ts'

/** A limiter of 20 calls per second with a clock that stands still, and the waits that it asked for. */
function setUp() {
  const clock = { nowMs: 10_000, waitsMs: [] as number[] }
  const limiter = new RateLimiter(20, {
    now: () => clock.nowMs,
    sleep: async (ms) => void clock.waitsMs.push(ms),
  })
  return { clock, limiter }
}

const acquire = (limiter: RateLimiter, accountId: bigint, calls: number) =>
  Promise.all(Array.from({ length: calls }, () => limiter.acquire(accountId)))

it('lets an idle account send one second of calls without a wait, and the next one 50 ms later', async () => {
  const { clock, limiter } = setUp()
  expect(await acquire(limiter, 1n, 21)).not.toContain(false)
  expect(clock.waitsMs).toEqual([])
  expect(await acquire(limiter, 1n, 2)).toEqual([true, true])
  expect(clock.waitsMs).toEqual([50, 100])
})

it('refuses a call that would wait for more than 1.5 s', async () => {
  const { clock, limiter } = setUp()
  const granted = await acquire(limiter, 1n, 60)
  // 1 s of saved calls, the current one, and 1.5 s of waiting: 20 + 1 + 30.
  expect(granted.filter(Boolean)).toHaveLength(51)
  expect(Math.max(...clock.waitsMs)).toBe(1_500)
})

it('grants calls again as time passes', async () => {
  const { clock, limiter } = setUp()
  await acquire(limiter, 1n, 60)
  clock.nowMs = 10_100
  expect(await acquire(limiter, 1n, 3)).toEqual([true, true, false])
})
