/**
 * Large bodies take turns: one is handled in each turn of the event loop. Checking, parsing and encoding 1 MiB takes 10 ms, and up to
 * 100 ms if it is hostile, so that 32 bodies that are complete at the same time would hold up everybody else for seconds.
 */

/** Bytes: some 0.5 ms of work. Smaller bodies do not wait. */
export const LARGE_BODY_BYTES = 64 * 1024

export class LargeBodyTurns {
  readonly #waiting: Array<() => void> = []
  readonly #handleNext = () => {
    const handle = this.#waiting.shift()
    if (this.#waiting.length > 0) setImmediate(this.#handleNext)
    handle?.()
  }

  /** Calls it in a later turn of the event loop, after those that were added before. */
  add(handle: () => void): void {
    this.#waiting.push(handle)
    if (this.#waiting.length === 1) setImmediate(this.#handleNext)
  }
}
