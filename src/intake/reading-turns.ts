/** Reading the events of a large request, with turns of other requests in between. */
import { setImmediate } from 'node:timers/promises'

/** Milliseconds of one turn, for which other requests wait. Most requests take less than 0.1 ms. */
const TURN_MAX_MS = 2

export class ReadingTurns {
  #startedAtMs = performance.now()

  /** Events may be of any size, so their number does not say when the turn is over. */
  isOver(): boolean {
    return performance.now() - this.#startedAtMs > TURN_MAX_MS
  }

  async next(): Promise<void> {
    await setImmediate()
    this.#startedAtMs = performance.now()
  }
}
