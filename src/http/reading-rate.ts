/** Cuts off clients that read a response too slowly. */

/** Bytes that a response is sent in. */
export const PIECE_BYTES = 64 * 1024
/** Milliseconds that a client may take for a piece on average: 64 KiB ÷ 10 s = 6.4 KiB/s. */
const PIECE_MAX_MS = 10_000
/**
 * Milliseconds that a client may be behind. A client that stops reading is cut off after this time. A socket takes bytes again
 * only when a third of its buffer is free, so a slow client that reads steadily seems to stop for a while, too.
 */
const ARREARS_MAX_MS = 50_000

/**
 * Measures how long a client takes for what it is sent. Only the time counts in which the service waits for the client, and a
 * fast start earns no time for later. `onTooSlow` is called once.
 */
export class ReadingRate {
  readonly #onTooSlow: () => void
  #leftMs = ARREARS_MAX_MS
  #sentAtMs = 0
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  constructor(onTooSlow: () => void) {
    this.#onTooSlow = onTooSlow
  }

  /** Bytes were handed to the connection. The service now waits until it can take more. */
  wait(): void {
    clearTimeout(this.#timer)
    if (this.#isOver) return
    this.#sentAtMs = performance.now()
    this.#timer = setTimeout(this.#onTooSlow, this.#leftMs)
  }

  /** The connection has taken that many bytes. */
  took(bytes: number): void {
    clearTimeout(this.#timer)
    const earnedMs = (PIECE_MAX_MS * bytes) / PIECE_BYTES
    const waitedMs = performance.now() - this.#sentAtMs
    this.#leftMs = Math.min(ARREARS_MAX_MS, this.#leftMs - waitedMs + earnedMs)
  }

  /** The response is over. */
  end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
  }
}
