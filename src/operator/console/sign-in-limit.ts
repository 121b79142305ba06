/** Limits wrong tokens and passwords: of each browser that has signed in before, and of all others by address, by operator and in total. */
import type { FastifyRequest } from 'fastify'
import { AppError } from '../../errors.ts'
import { createClientKey, MemoryStore } from '../../http/rate-limit.ts'

/** Wrong attempts per window of one browser, of one address, or for one operator from unknown browsers. People mistype a few times. */
const WRONG_PER_KEY = 10
const WINDOW_MS = 15 * 60_000
/** Wrong attempts of all unknown browsers per minute. A password takes up to 0.5 s of a core: 30 s of a core per minute. */
const WRONG_IN_TOTAL = 60
const TOTAL_WINDOW_MS = 60_000

/** Nothing was compared: too many hashes wait, or the database does not respond. */
const NOT_COMPARED: readonly string[] = ['sign_in_limited', 'unavailable', 'busy', 'internal']

export interface Attempt {
  /** Runs the comparison. An attempt that could not be compared does not count. */
  compare: <T>(work: () => Promise<T>) => Promise<T>
  /** A correct attempt does not count. */
  succeed: () => void
}

/** What is guessed. The shared limits are separate, so guesses of tokens lock out nobody who has a password. */
export type Guessed =
  | { kind: 'token' }
  /** in lower case; whether the operator exists makes no difference */
  | { kind: 'password'; email: string }
  /** 32 random bytes, which nobody guesses: limited by address alone */
  | { kind: 'invitation' }

/** @param device the proven browser or session, which has a limit of its own; null: unknown. Throws `sign_in_limited`. */
export type TakeAttempt = (request: FastifyRequest, guessed: Guessed, device: string | null) => Attempt

type Count = { store: MemoryStore; key: string; max: number }

/** Each attempt counts before it is compared, so parallel attempts cannot exceed the limit. */
export function limitSignIns(): TakeAttempt {
  const devices = new MemoryStore(WINDOW_MS)
  const addresses = new MemoryStore(WINDOW_MS)
  const operators = new MemoryStore(WINDOW_MS)
  const total = new MemoryStore(TOTAL_WINDOW_MS)
  const keyOf = createClientKey()
  const countsOf = (request: FastifyRequest, guessed: Guessed, device: string | null): Count[] => {
    if (device !== null) return [{ store: devices, key: device, max: WRONG_PER_KEY }]
    const counts = [{ store: addresses, key: keyOf(request), max: WRONG_PER_KEY }]
    if (guessed.kind === 'password') counts.push({ store: operators, key: guessed.email, max: WRONG_PER_KEY })
    if (guessed.kind !== 'invitation') counts.push({ store: total, key: guessed.kind, max: WRONG_IN_TOTAL })
    return counts
  }
  return (request, guessed, device) => {
    const counted: Count[] = []
    const giveBack = () => {
      for (const { store, key } of counted) store.giveBack(key)
    }
    for (const count of countsOf(request, guessed, device)) {
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
      succeed: giveBack,
    }
  }
}

const limited = (leftMs: number) =>
  new AppError('sign_in_limited', { retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)) })
