/** What one process remembers of an endpoint, and the endpoint's share of the process. */

/** Requests of one process to one endpoint. */
const ENDPOINT_IN_FLIGHT_MAX = 16
/** An endpoint may start a request while it has fewer in flight than this part of what is free in the whole process. */
const SHARE_OF_FREE = 1 / 8
/** Deliveries that wait in memory for an endpoint that answers quickly, and for one that does not. */
const WAITING_MAX_FAST = 1_024
const WAITING_MAX_SLOW = 16
/** 1,024 deliveries ÷ 16 requests × 0.2 s = 13 s, within the 18 s in which a leased delivery must begin. */
const FAST_MS = 200
/** Of the backlog in memory: below it, more is leased before it runs out. */
const HUNGRY_BELOW = 512
/** A single message that an endpoint refuses is not an outage. */
const OUTAGE_FAILURES = 5
/** During an outage, new deliveries are still tried, but take less of the process. */
const OUTAGE_IN_FLIGHT_MAX = 4

export class EndpointState<Item> {
  readonly waiting: Item[] = []
  inFlight = 0
  /** The last poll found as much as there was room for. */
  hasMore = false
  #isFast = true
  #failuresInRow = 0
  #recoveredAtMs: number | null = null

  /** Deliveries that this process may lease now. */
  get room(): number {
    return Math.max(0, (this.#isFast ? WAITING_MAX_FAST : WAITING_MAX_SLOW) - this.waiting.length)
  }

  get isHungry(): boolean {
    return this.hasMore && this.#isFast && this.waiting.length < HUNGRY_BELOW
  }

  /** @param free requests that this process may still start, for all endpoints */
  mayStart(free: number): boolean {
    const isDown = this.#failuresInRow >= OUTAGE_FAILURES
    const most = isDown ? OUTAGE_IN_FLIGHT_MAX : ENDPOINT_IN_FLIGHT_MAX
    const share = Math.max(1, Math.min(most, Math.floor(free * SHARE_OF_FREE)))
    return free > 0 && this.inFlight < share
  }

  note(isAccepted: boolean, tookMs: number): void {
    this.#isFast = isAccepted && tookMs < FAST_MS
    if (!isAccepted) this.#failuresInRow += 1
    else {
      if (this.#failuresInRow >= OUTAGE_FAILURES) this.#recoveredAtMs = performance.now()
      this.#failuresInRow = 0
    }
  }

  /** Milliseconds since the endpoint accepted a delivery after an outage. Null: there was none, or it is not over. */
  recoveredAgoMs(nowMs: number): number | null {
    if (this.#recoveredAtMs === null || this.#failuresInRow > 0) return null
    return Math.floor(nowMs - this.#recoveredAtMs)
  }
}
