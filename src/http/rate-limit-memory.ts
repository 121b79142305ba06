/**
 * Rate limit counts in this process. The memory store of @fastify/rate-limit answers with promises, which cost about 5 %
 * of intake (measured). This one answers synchronously.
 */
import { LRUCache } from 'lru-cache'
import { type Counter, createClientKey } from './rate-limit-counter.ts'

/**
 * Windows kept, about 40 MiB. Beyond it the least recently used window is dropped. A count takes 0.1 µs at 10,000
 * addresses and 0.6 to 1.9 µs at a million.
 */
const WINDOWS_MAX = 200_000

/** Fixed windows. Each begins with the first request of its address. */
export class MemoryStore {
  readonly #windows = new LRUCache<string, { count: number; startedAtMs: number }>({ max: WINDOWS_MAX })
  readonly #windowMs: number

  constructor(windowMs: number) {
    this.#windowMs = windowMs
  }

  /** Counts one request. Returns the requests in the window, including this one, and the rest of the window. */
  count(key: string): { requests: number; leftMs: number } {
    // A monotonic clock: the time of day can be set back.
    const now = performance.now()
    let window = this.#windows.get(key)
    if (window === undefined || window.startedAtMs + this.#windowMs <= now) {
      window = { count: 0, startedAtMs: now }
      this.#windows.set(key, window)
    }
    window.count += 1
    return { requests: window.count, leftMs: window.startedAtMs + this.#windowMs - now }
  }

  giveBack(key: string): void {
    const window = this.#windows.get(key)
    if (window !== undefined && window.count > 0) window.count -= 1
  }
}

export function countInMemory(max: number, windowMs: number): Counter {
  const store = new MemoryStore(windowMs)
  const keyOf = createClientKey()
  return {
    count: (request) => {
      const { requests, leftMs } = store.count(keyOf(request))
      return {
        remaining: Math.max(0, max - requests),
        resetSeconds: Math.ceil(leftMs / 1000),
        isExceeded: requests > max,
      }
    },
    giveBack: (request) => store.giveBack(keyOf(request)),
  }
}
