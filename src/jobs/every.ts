/** Work that repeats in the background until it is stopped. */
import { setTimeout as sleep } from 'node:timers/promises'

export interface Repetition {
  /** Aborts the signal of the work. Resolves when the run in progress has ended, or after `maxMs`. */
  stop: (maxMs?: number) => Promise<void>
  /** Ends the pause, or skips the next one. */
  wake: () => void
}

/** Resolves when the work in progress has ended, or after the longest time that a shutdown may take. */
export type Stop = () => Promise<void>

/**
 * Runs `work` at once, and again `ms` after it ends. A number that it resolves with replaces `ms` once. An error counts as the end of a
 * run: usually the database is down.
 */
export function every(
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
    stop: async (maxMs) => {
      stopped.abort()
      wake()
      const late = maxMs === undefined ? [] : [sleep(maxMs, undefined, { ref: false })]
      await Promise.race([running, ...late])
    },
  }
}
