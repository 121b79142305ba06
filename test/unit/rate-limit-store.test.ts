/** The counts of the rate limit, where no Redis keeps them: bounded, whoever comes. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { MemoryStore } from '../../src/http/rate-limit-memory.ts'

function heapMiB(): number {
  setFlagsFromString('--expose-gc')
  ;(runInNewContext('gc') as () => void)()
  return process.memoryUsage().heapUsed / 2 ** 20
}

it('remember a million addresses in bounded memory, and the newest of them exactly', () => {
  const store = new MemoryStore(600_000)
  const countOf = (address: string) => store.count(address).requests
  const before = heapMiB()
  const address = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`
  for (let i = 0; i < 1_000_000; i += 1) countOf(address(i))
  expect(heapMiB() - before).toBeLessThan(100)
  expect(countOf(address(999_999))).toBe(2)
  expect(countOf(address(0))).toBe(1)
})
