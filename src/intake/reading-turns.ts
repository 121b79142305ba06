/** Lets other requests proceed while the events of a large request are read. */
import { setImmediate } from 'node:timers/promises'

/** Other requests wait this long. Most requests are read in less than 0.1 ms. */
const TURN_MAX_MS = 2

export class ReadingTurns {
  #startedAtMs = performance.now()

  isOver(): boolean {
    return performance.now() - this.#startedAtMs > TURN_MAX_MS
  }

  async next(): Promise<void> {
    await setImmediate()
    this.#startedAtMs = performance.now()
  }
}
