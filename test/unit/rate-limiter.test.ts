/** Calls to the platform stay below its rate limit, and a call that would wait too long is refused. */
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { RateLimiter } from '../../src/line-api/rate-limiter.ts'

const waitsMs = vi.hoisted((): number[] => [])
vi.mock('node:timers/promises', () => ({ setTimeout: async (ms: number) => void waitsMs.push(ms) }))

/** Replaces the monotonic clock for one test. */
function setClock(ms: number): (ms: number) => void {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(ms)
  onTestFinished(() => clock.mockRestore())
  return (laterMs) => void clock.mockReturnValue(laterMs)
}

const acquire = (limiter: RateLimiter, accountId: bigint, calls: number) =>
  Promise.all(Array.from({ length: calls }, () => limiter.acquire(accountId)))

beforeEach(() => {
  waitsMs.length = 0
})

it('lets an idle account send one second of calls without a wait, and the next one 50 ms later', async () => {
  setClock(10_000)
  const limiter = new RateLimiter(20)
  expect(await acquire(limiter, 1n, 21)).not.toContain(false)
  expect(waitsMs).toEqual([])
  expect(await acquire(limiter, 1n, 2)).toEqual([true, true])
  expect(waitsMs).toEqual([50, 100])
})

it('refuses a call that would wait for more than 1.5 s', async () => {
  setClock(10_000)
  const granted = await acquire(new RateLimiter(20), 1n, 60)
  // 1 s of saved calls, the current one, and 1.5 s of waiting: 20 + 1 + 30.
  expect(granted.filter(Boolean)).toHaveLength(51)
  expect(Math.max(...waitsMs)).toBe(1_500)
})

it('limits each account separately', async () => {
  setClock(10_000)
  const limiter = new RateLimiter(20)
  await acquire(limiter, 1n, 60)
  expect(await limiter.acquire(1n)).toBe(false)
  expect(await limiter.acquire(2n)).toBe(true)
})

it('grants calls again as time passes', async () => {
  const setNow = setClock(10_000)
  const limiter = new RateLimiter(20)
  await acquire(limiter, 1n, 60)
  setNow(10_100)
  expect(await acquire(limiter, 1n, 3)).toEqual([true, true, false])
})
