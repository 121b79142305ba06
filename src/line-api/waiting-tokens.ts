/** How many ID tokens wait for a verification or for LINE's keys. Their requests wait with them, so this bounds memory. */

/** About a second of verifications: 5,000 × 170 µs = 0.85 s. */
const WAITING_MAX = 5_000

/** A login channel may have as many as are free: half of all if it is alone, and others always find room. */
export class WaitingTokens {
  readonly #byChannel = new Map<string, number>()
  #total = 0

  /** Returns false, and counts nothing, if the channel would have more than its share. */
  enter(loginChannelId: string, count: number): boolean {
    const waiting = this.#byChannel.get(loginChannelId) ?? 0
    if (waiting + count > WAITING_MAX - this.#total) return false
    this.#count(loginChannelId, waiting + count, count)
    return true
  }

  leave(loginChannelId: string, count: number): void {
    this.#count(loginChannelId, (this.#byChannel.get(loginChannelId) ?? 0) - count, -count)
  }

  #count(loginChannelId: string, waiting: number, change: number): void {
    this.#total += change
    if (waiting === 0) this.#byChannel.delete(loginChannelId)
    else this.#byChannel.set(loginChannelId, waiting)
  }
}
