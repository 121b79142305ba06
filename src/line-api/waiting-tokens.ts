/** Limits the ID tokens, and so the requests in memory, that wait for a verification or for LINE's keys. */

/** About a second of verifications: 5,000 × 170 µs = 0.85 s. */
const WAITING_MAX = 5_000

/** A login channel may have as many as it leaves free: half of all if it is alone. So others always find room. */
export class WaitingTokens {
  readonly #byChannel = new Map<string, number>()
  #total = 0

  /** Whether the channel may have `count` more. */
  hasRoom(loginChannelId: string, count: number): boolean {
    return count === 0 || this.#waitingOf(loginChannelId) + count <= WAITING_MAX - this.#total
  }

  /** Returns false, and counts nothing, if there is no room. */
  enter(loginChannelId: string, count: number): boolean {
    if (!this.hasRoom(loginChannelId, count)) return false
    this.#count(loginChannelId, this.#waitingOf(loginChannelId) + count, count)
    return true
  }

  leave(loginChannelId: string, count: number): void {
    this.#count(loginChannelId, this.#waitingOf(loginChannelId) - count, -count)
  }

  #waitingOf(loginChannelId: string): number {
    return this.#byChannel.get(loginChannelId) ?? 0
  }

  #count(loginChannelId: string, waiting: number, change: number): void {
    this.#total += change
    if (waiting === 0) this.#byChannel.delete(loginChannelId)
    else this.#byChannel.set(loginChannelId, waiting)
  }
}
