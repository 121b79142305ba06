/** Limits what one operator does at the same time, so that nobody uses up what all operators share. */
import { AppError } from '../../errors.ts'
import type { Operator } from '../actor.ts'

const RETRY_AFTER_SECONDS = 2

export class OperatorLimit {
  readonly #max: number
  readonly #running = new Map<bigint, number>()

  constructor(max: number) {
    this.#max = max
  }

  /**
   * Returns the function that ends what begins now. Throws `busy`. A team shares CONSOLE_TOKEN, so its holders have no limit here.
   */
  begin({ operatorId }: Operator): () => void {
    if (operatorId === null) return () => undefined
    const running = this.#running.get(operatorId) ?? 0
    if (running >= this.#max) throw new AppError('busy', { retryAfterSeconds: RETRY_AFTER_SECONDS })
    this.#running.set(operatorId, running + 1)
    return () => {
      const left = (this.#running.get(operatorId) ?? 1) - 1
      if (left === 0) this.#running.delete(operatorId)
      else this.#running.set(operatorId, left)
    }
  }
}
