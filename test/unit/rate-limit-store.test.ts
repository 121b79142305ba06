/** The rate limit's counts in memory: exact windows, bounded memory. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, onTestFinished, vi } from 'vitest'
import { MemoryStore } from '../../src/http/rate-limit.ts'

function heapMiB(): number {
  setFlagsFromString('--expose-gc')
  ;(runInNewContext('gc') as () => void)()
  return process.memoryUsage().heapUsed / 2 ** 20
}

/** Replaces the monotonic clock for one test. */
function setClock(ms: number): (ms: number) => void {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(ms)
  onTestFinished(() => clock.mockRestore())
  return (laterMs) => void clock.mockReturnValue(laterMs)
}

it('counts within a window that begins with the first request of the address', () => {
  const setNow = setClock(5_000)
  const store = new MemoryStore(600)
  expect(store.count('a')).toEqual({ requests: 1, leftMs: 600 })
  setNow(5_599)
  expect(store.count('a')).toEqual({ requests: 2, leftMs: 1 })
  expect(store.count('b')).toEqual({ requests: 1, leftMs: 600 })
})

it('never gives back more than was counted', () => {
  setClock(5_000)
  const store = new MemoryStore(600)
  store.count('a')
  store.giveBack('a')
  store.giveBack('a')
  expect(store.count('a').requests).toBe(1)
})

it('keeps half a million addresses in less than 70 MiB and drops the least recently used', () => {
  const store = new MemoryStore(600_000)
  const countOf = (address: string) => store.count(address).requests
  const before = heapMiB()
  const address = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`
  for (let i = 0; i < 500_000; i += 1) {
    countOf(address(i))
    if (i % 50_000 === 0) countOf('active')
  }
  expect(heapMiB() - before).toBeLessThan(70)
  expect(countOf(address(499_999))).toBe(2)
  expect(countOf(address(0))).toBe(1)
  expect(countOf('active')).toBe(11)
})
