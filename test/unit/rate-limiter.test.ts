/** Calls to the platform stay below its limits, and nobody waits for a turn that is too far off. */
import { expect, it } from 'vitest'
import { RateLimiter } from '../../src/line-api/rate-limiter.ts'

it('lets a second’s worth of calls out at once, then one after the other, and refuses what is too far off', async () => {
  const limiter = new RateLimiter(20)
  const startedAtMs = performance.now()
  // 20 saved up, and 30 that wait for 1.5 s at most.
  const turns = Array.from({ length: 60 }, () => limiter.acquire(1n))
  const another = limiter.acquire(2n)
  expect(await Promise.all(turns.slice(0, 20))).not.toContain(false)
  expect(await another).toBe(true)
  expect(performance.now() - startedAtMs).toBeLessThan(500)
  const granted = (await Promise.all(turns)).filter(Boolean)
  expect(granted.length).toBeGreaterThanOrEqual(50)
  expect(granted.length).toBeLessThanOrEqual(52)
  expect(performance.now() - startedAtMs).toBeGreaterThan(1_300)
})
