/** Limits wrong tokens and passwords, by address, by operator and in total. */
import type { FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { AppError } from '../../errors.ts'
import { createClientKey, MemoryStore } from '../../http/rate-limit-counter.ts'

/** Wrong attempts of one address, or for one operator from unknown addresses, per window, because people mistype a few times. */
const WRONG_PER_KEY = 10
const WINDOW_MS = 15 * 60_000
/** Wrong attempts of all unknown addresses per minute. A password takes up to 0.5 s of a core: 30 s of a core per minute. */
const WRONG_IN_TOTAL = 60
const TOTAL_WINDOW_MS = 60_000
/** Addresses that have signed in before. Guesses from many addresses must not lock out their operators. */
const TRUSTED_ADDRESSES_MAX = 1_000
const ALL_ADDRESSES = 'all'

/** Nothing was compared: too many hashes wait, or the database does not respond. */
const NOT_COMPARED: readonly string[] = ['sign_in_limited', 'unavailable', 'busy', 'internal']

export interface Attempt {
  /** Runs the comparison. An attempt that could not be compared does not count. */
  compare: <T>(work: () => Promise<T>) => Promise<T>
  /** A correct attempt does not count. */
  succeed: () => void
}

/** @param email in lower case, for a password. Throws `sign_in_limited`. */
export type TakeAttempt = (request: FastifyRequest, email?: string) => Attempt

/** Each attempt counts before it is compared, so parallel attempts cannot exceed the limit. */
export function limitSignIns(): TakeAttempt {
  const trusted = new LRUCache<string, true>({ max: TRUSTED_ADDRESSES_MAX })
  const addresses = new MemoryStore(WINDOW_MS)
  const operators = new MemoryStore(WINDOW_MS)
  const total = new MemoryStore(TOTAL_WINDOW_MS)
  const keyOf = createClientKey()
  return (request, email) => {
    const key = keyOf(request)
    const counts = [{ store: addresses, key, max: WRONG_PER_KEY }]
    if (!trusted.has(key)) {
      // Whether the operator exists makes no difference.
      if (email !== undefined) counts.push({ store: operators, key: email, max: WRONG_PER_KEY })
      counts.push({ store: total, key: ALL_ADDRESSES, max: WRONG_IN_TOTAL })
    }
    const counted: typeof counts = []
    const giveBack = () => {
      for (const { store, key } of counted) store.giveBack(key)
    }
    for (const count of counts) {
      const { requests, leftMs } = count.store.count(count.key)
      counted.push(count)
      if (requests <= count.max) continue
      giveBack()
      throw limited(leftMs)
    }
    return {
      compare: (work) =>
        work().catch((error: unknown) => {
          if (!(error instanceof AppError) || NOT_COMPARED.includes(error.code)) giveBack()
          throw error
        }),
      succeed: () => {
        trusted.set(key, true)
        giveBack()
      },
    }
  }
}

const limited = (leftMs: number) =>
  new AppError('sign_in_limited', { retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) })
