/** The state of an endpoint in one process: its queue in memory and the results of its last attempts. */

/** Requests of one process to one endpoint. */
const ENDPOINT_IN_FLIGHT_MAX = 16
/** Requests to an endpoint that is new or whose last attempt failed, and deliveries in memory for it. */
const UNCERTAIN_MAX = 4
/** Deliveries in memory for an endpoint that responds quickly, and for one that does not. */
const WAITING_MAX_PROVEN = 1_024
const WAITING_MAX_SLOW = 16
/** 1,024 deliveries ÷ 16 requests × 0.2 s = 13 s, within the 18 s in which a leased delivery must begin. */
const QUICK_MS = 200
/** More than one, because a single rejected message is not an outage. */
const OUTAGE_FAILURES = 5
/** During an outage, one delivery at a time is tried. The pause between attempts doubles from FIRST to LAST. */
const FIRST_PROBE_MS = 1_000
const LAST_PROBE_MS = 60_000

export class EndpointState<Item> {
  readonly waiting: Item[] = []
  inFlight = 0
  #isKnown = false
  #isQuick = false
  #failuresInRow = 0
  #probeAtMs = 0
  #recoveredAtMs: number | null = null

  /** The last attempt was a quick success. */
  get isProven(): boolean {
    return this.#isQuick
  }

  get isDown(): boolean {
    return this.#failuresInRow >= OUTAGE_FAILURES
  }

  /** Maximum number of requests in flight. */
  get inFlightMax(): number {
    if (this.isDown) return 1
    return this.#isUncertain ? UNCERTAIN_MAX : ENDPOINT_IN_FLIGHT_MAX
  }

  /** Deliveries that this process may lease now. */
  room(nowMs: number): number {
    if (this.isDown) {
      const isProbing = this.waiting.length + this.inFlight > 0
      return !isProbing && nowMs >= this.#probeAtMs ? 1 : 0
    }
    const most = this.#isQuick ? WAITING_MAX_PROVEN : this.#isUncertain ? UNCERTAIN_MAX : WAITING_MAX_SLOW
    return Math.max(0, most - this.waiting.length)
  }

  get #isUncertain(): boolean {
    return !this.#isKnown || this.#failuresInRow > 0
  }

  /** Sets the result of the last attempt of any process, unless this process has made an attempt of its own. */
  restore(wasAccepted: boolean): void {
    if (this.#isKnown) return
    this.#isKnown = true
    this.#isQuick = wasAccepted
    this.#failuresInRow = wasAccepted ? 0 : OUTAGE_FAILURES
  }

  /** Returns whether the endpoint has recovered from an outage. @param tookMs excludes reads from the database */
  note(isAccepted: boolean, tookMs: number, nowMs: number): boolean {
    const wasDown = this.isDown
    this.#isKnown = true
    this.#isQuick = isAccepted && tookMs < QUICK_MS
    this.#failuresInRow = isAccepted ? 0 : this.#failuresInRow + 1
    if (this.isDown) this.#probeAtMs = nowMs + probePauseMs(this.#failuresInRow - OUTAGE_FAILURES)
    const isRecovered = wasDown && isAccepted
    if (isRecovered) this.#recoveredAtMs = nowMs
    return isRecovered
  }

  /** Milliseconds since the first success after an outage. Null: there was no outage, or it is not over. */
  recoveredAgoMs(nowMs: number): number | null {
    if (this.#recoveredAtMs === null || this.#failuresInRow > 0) return null
    return Math.floor(nowMs - this.#recoveredAtMs)
  }
}

const probePauseMs = (probes: number): number => Math.min(LAST_PROBE_MS, FIRST_PROBE_MS * 2 ** probes)
