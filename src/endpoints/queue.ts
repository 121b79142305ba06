/**
 * The queue of deliveries in this process:
 *
 * 1. Endpoints take turns, one delivery each.
 * 2. An endpoint is proven if its last attempt had a quick response, unless it is down. Proven endpoints go first.
 * 3. All other endpoints (new, slow, down or silent) share half of the requests. A silent endpoint occupies a request for 10 s.
 *    The other half remains for proven endpoints.
 * 4. An endpoint may use an eighth of the free requests. An account may use as many as it leaves free.
 */
import type { LeasedDelivery } from '../intake/flush.ts'

/** Limits sockets and their memory. */
const IN_FLIGHT_MAX = 1_024
const UNPROVEN_IN_FLIGHT_MAX = IN_FLIGHT_MAX / 2
const SHARE_OF_FREE = 1 / 8

/** A delivery that has begun, and whether the endpoint was proven then. */
export interface Started<Item extends LeasedDelivery> {
  state: EndpointState<Item>
  item: Item
  isProven: boolean
}

export class Queue<Item extends LeasedDelivery> {
  readonly #states = new Map<bigint, EndpointState<Item>>()
  /** Endpoints that can start a delivery, in the order of their turns. */
  readonly #proven = new Set<EndpointState<Item>>()
  readonly #unproven = new Set<EndpointState<Item>>()
  #inFlight = 0
  #unprovenInFlight = 0
  readonly #inFlightOf = new Map<bigint, number>()

  get inFlight(): number {
    return this.#inFlight
  }

  stateOf(endpointId: bigint): EndpointState<Item> {
    const state = this.#states.get(endpointId) ?? new EndpointState<Item>()
    this.#states.set(endpointId, state)
    return state
  }

  restore(endpointId: bigint, wasUp: boolean): void {
    const state = this.stateOf(endpointId)
    state.restore(wasUp)
    this.#queue(state)
  }

  /** Returns false if there is no room. */
  add(item: Item, nowMs: number): boolean {
    const state = this.stateOf(item.endpointId)
    if (state.room(nowMs, 1) === 0) return false
    state.waiting.push(item)
    if (!this.#turnsOf(state).has(state)) this.#queue(state)
    return true
  }

  start(): Started<Item> | null {
    const free = IN_FLIGHT_MAX - this.#inFlight
    const unprovenFree = Math.min(free, UNPROVEN_IN_FLIGHT_MAX - this.#unprovenInFlight)
    return this.#startOf(this.#proven, free) ?? this.#startOf(this.#unproven, unprovenFree)
  }

  end({ state, item, isProven }: Started<Item>): void {
    this.#count(item, isProven, -1)
    state.inFlight -= 1
    this.#queue(state)
  }

  clear(): Item[] {
    this.#proven.clear()
    this.#unproven.clear()
    return [...this.#states.values()].flatMap(({ waiting }) => waiting.splice(0))
  }

  #startOf(turns: Set<EndpointState<Item>>, free: number): Started<Item> | null {
    if (free <= 0) return null
    const share = Math.max(1, Math.floor(free * SHARE_OF_FREE))
    for (const state of turns) {
      const [{ accountId } = {}] = state.waiting
      const isFair = accountId !== undefined && (this.#inFlightOf.get(accountId) ?? 0) < free
      if (!isFair || state.inFlight >= Math.min(share, state.inFlightMax)) continue
      const item = state.take()
      state.inFlight += 1
      this.#queue(state)
      const started = { state, item, isProven: turns === this.#proven }
      this.#count(item, started.isProven, 1)
      return started
    }
    return null
  }

  /** Gives the endpoint the last turn, or none if it can start nothing. */
  #queue(state: EndpointState<Item>): void {
    this.#proven.delete(state)
    this.#unproven.delete(state)
    if (state.waiting.length > 0 && state.inFlight < state.inFlightMax) this.#turnsOf(state).add(state)
  }

  #turnsOf({ isProven }: EndpointState<Item>): Set<EndpointState<Item>> {
    return isProven ? this.#proven : this.#unproven
  }

  #count({ accountId }: Item, isProven: boolean, change: 1 | -1): void {
    this.#inFlight += change
    if (!isProven) this.#unprovenInFlight += change
    const ofAccount = (this.#inFlightOf.get(accountId) ?? 0) + change
    if (ofAccount === 0) this.#inFlightOf.delete(accountId)
    else this.#inFlightOf.set(accountId, ofAccount)
  }
}

/** Requests of one process to one endpoint. */
const ENDPOINT_IN_FLIGHT_MAX = 16
/** Requests to an endpoint that is new or whose last response was that of one that is down, and deliveries in memory for it. */
const UNCERTAIN_MAX = 4
/** Deliveries in memory for an endpoint that responds quickly, and for one that does not. */
const WAITING_MAX_PROVEN = 1_024
const WAITING_MAX_SLOW = 16
const CLAIMED_SHARE = 3 / 4
/** 1,024 deliveries ÷ 16 requests × 0.2 s = 13 s, within the 18 s in which a leased delivery must begin. */
const QUICK_MS = 200
/** More than one, because a connection may be lost once. */
const OUTAGE_FAILURES = 5
/** During an outage, one delivery at a time is tried. The pause between attempts doubles from FIRST to LAST. */
const FIRST_PROBE_MS = 1_000
const LAST_PROBE_MS = 60_000

/** Of one process: the endpoint's queue in memory, and the results of its last attempts. */
export class EndpointState<Item extends LeasedDelivery> {
  readonly waiting: Item[] = []
  inFlight = 0
  #isKnown = false
  #isQuick = false
  #failuresInRow = 0
  #probeAtMs = 0
  #isFirstNext = false

  get isProven(): boolean {
    return this.#isQuick
  }

  get isDown(): boolean {
    return this.#failuresInRow >= OUTAGE_FAILURES
  }

  get inFlightMax(): number {
    if (this.isDown) return 1
    return this.#isUncertain ? UNCERTAIN_MAX : ENDPOINT_IN_FLIGHT_MAX
  }

  /** Every second one is a first attempt, if one waits. So a message does not wait for a thousand retries. */
  take(): Item {
    this.#isFirstNext = !this.#isFirstNext
    const index = this.#isFirstNext ? this.waiting.findIndex(({ attempts }) => attempts === 1) : 0
    return this.waiting.splice(Math.max(0, index), 1)[0] as Item
  }

  /** Deliveries that this process may lease now. @param share of the memory; claims leave some to what flushes hand over */
  room(nowMs: number, share = CLAIMED_SHARE): number {
    if (this.isDown) {
      const isProbing = this.waiting.length + this.inFlight > 0
      return !isProbing && nowMs >= this.#probeAtMs ? 1 : 0
    }
    const most = this.#isQuick ? WAITING_MAX_PROVEN : this.#isUncertain ? UNCERTAIN_MAX : WAITING_MAX_SLOW
    return Math.max(0, most * share - this.waiting.length)
  }

  get #isUncertain(): boolean {
    return !this.#isKnown || this.#failuresInRow > 0
  }

  /** Sets the result of the last attempt of any process, unless this process has made an attempt of its own. */
  restore(wasUp: boolean): void {
    if (this.#isKnown) return
    this.#isKnown = true
    this.#isQuick = wasUp
    this.#failuresInRow = wasUp ? 0 : OUTAGE_FAILURES
  }

  /** Returns whether the endpoint has recovered from an outage. @param tookMs excludes reads from the database */
  note(isUp: boolean, tookMs: number, nowMs: number): boolean {
    const wasDown = this.isDown
    this.#isKnown = true
    this.#isQuick = isUp && tookMs < QUICK_MS
    this.#failuresInRow = isUp ? 0 : this.#failuresInRow + 1
    if (this.isDown) this.#probeAtMs = nowMs + probePauseMs(this.#failuresInRow - OUTAGE_FAILURES)
    return wasDown && isUp
  }
}

const probePauseMs = (probes: number): number => Math.min(LAST_PROBE_MS, FIRST_PROBE_MS * 2 ** probes)
