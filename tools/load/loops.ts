/** Work that repeats until it is paused for a comparison. */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

export class Loops {
  readonly #works: Array<{ work: () => Promise<void>; pauseMs: number }> = []
  #stopping = new AbortController()
  #running: Array<Promise<void>> = []

  /** @param pauseMs between two repetitions, on average */
  add(pauseMs: number, work: () => Promise<void>): void {
    this.#works.push({ work, pauseMs })
  }

  /** @param onFault receives what ends a loop */
  start(onFault: (error: Error) => void = () => undefined): void {
    this.#stopping = new AbortController()
    setMaxListeners(this.#works.length, this.#stopping.signal)
    this.#running = this.#works.map(({ work, pauseMs }) => this.#repeat(work, pauseMs))
    // `finish` reports faults, too.
    for (const running of this.#running) running.catch(onFault)
  }

  /** Begins nothing new, and resolves when everything that was begun has ended. */
  async finish(): Promise<void> {
    this.#stopping.abort()
    await Promise.all(this.#running)
  }

  async #repeat(work: () => Promise<void>, pauseMs: number): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      const waitMs = 2 * Math.random() * pauseMs
      if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined)
      if (!signal.aborted) await work()
    }
  }
}
