/** Limits what runs at the same time, so that nobody takes all of what others share. */
import type { AppError } from '../errors.ts'

/** A limit that work counts against. Work of one key, such as `organization 7`, shares it. */
export interface Share {
  key: string
  max: number
  refusal: () => AppError
}

export class Shares {
  readonly #running = new Map<string, number>()

  /**
   * Returns the function that ends what begins now. Call it once. Throws the refusal of the first share that is full, and then takes
   * none of them.
   */
  begin(shares: readonly Share[]): () => void {
    for (const { key, max, refusal } of shares) if ((this.#running.get(key) ?? 0) >= max) throw refusal()
    for (const { key } of shares) this.#add(key, 1)
    return () => {
      for (const { key } of shares) this.#add(key, -1)
    }
  }

  #add(key: string, change: number): void {
    const running = (this.#running.get(key) ?? 0) + change
    if (running === 0) this.#running.delete(key)
    else this.#running.set(key, running)
  }
}
