/** Work that repeats in the background until it is stopped. */
import { setTimeout as sleep } from 'node:timers/promises'

/** Everything that a process does in the background. test/faults/poisoned-account.test.ts has a row for each. */
export type Loop = (typeof LOOPS)[number]
// biome-ignore format: one name per line would fill a page
export const LOOPS = [
  'account checks', 'account figures', 'statuses', 'notifications', 'heartbeat', 'metrics', 'replication',
  'profiles', 'audiences', 'ledger', 'deliveries', 'member changes', 'kept deliveries', 'delivery counts',
  'jobs', 'maintenance', 'checkpoint', 'encryption',
] as const

/** Less than a shutdown may take. A run may wait for LINE or a frozen database for longer. */
export const STOP_MAX_MS = 3_000

/** Aborts the signal of the work. Resolves when the run in progress has ended, or after STOP_MAX_MS. */
export type Stop = () => Promise<void>

export interface Repetition {
  stop: Stop
  /** Ends the pause, or skips the next one. */
  wake: () => void
}

/**
 * Runs `work` at once, and again `ms` after it ends. A number that it resolves with replaces `ms` once. An error counts as the end of a
 * run: usually the database is down. The compiler requires a name of LOOPS.
 */
export function every(
  _loop: Loop,
  ms: number,
  work: (signal: AbortSignal) => Promise<void> | Promise<number>,
): Repetition {
  const stopped = new AbortController()
  let pause = new AbortController()
  const repeat = async () => {
    while (!stopped.signal.aborted) {
      pause = new AbortController()
      const { signal } = pause
      const pauseMs = (await Promise.resolve(work(stopped.signal)).catch(() => ms)) ?? ms
      if (pauseMs > 0) await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
    }
  }
  const running = repeat()
  const wake = () => pause.abort()
  return {
    wake,
    stop: async () => {
      stopped.abort()
      wake()
      await Promise.race([running, sleep(STOP_MAX_MS, undefined, { ref: false })])
    },
  }
}
