/**
 * Starts requests at fixed rates, however long responses take, and pauses for the checks. At full rate it also sends large
 * deliveries, each as soon as an earlier one is acknowledged.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { BrokenBook } from './requests.mjs'

/**
 * Per second, of all accounts together. Deliveries of LINE have two events on average and requests of tracking four, so these are
 * 30 × 2 + 12 + 8 × 4 = 104 events a second. They take about 0.35 of two cores, the driver included.
 */
const RATES = {
  line: 30,
  chat: 12,
  tracking: 8,
  update: 4,
  page: 5,
  search: 1,
  erase: 0.5,
  feed: 0.15,
  stream: 0.05,
  verify: 0.05,
}
const TICK_MS = 25
/** Large deliveries in flight at full rate. */
const LARGE_IN_FLIGHT = 48
/** Requests of one kind in flight. Those beyond it are dropped and counted: both services or the database are down. */
const IN_FLIGHT_MAX = 300
/** Longer than a sender repeats a request. */
const DRAIN_LIMIT_MS = 200_000
const POLL_MS = 20

export class Load {
  #senders
  #clients
  #tenants
  #random
  #onFault
  #timer = null
  #isFullRate
  #isPaused = false
  #activeMs = 0
  #started = Object.fromEntries(Object.keys(RATES).map((kind) => [kind, 0]))
  #inFlight = { ...Object.fromEntries(Object.keys(RATES).map((kind) => [kind, 0])), large: 0 }
  /** tenants whose feed or stream is being read: a client has one of each at a time */
  #reading = new Set()
  #dropped = 0

  constructor({ senders, clients, tenants, isFullRate, random, onFault }) {
    this.#senders = senders
    this.#clients = clients
    this.#tenants = tenants
    this.#isFullRate = isFullRate
    this.#random = random
    this.#onFault = onFault
  }

  start() {
    let lastMs = Date.now()
    this.#timer = setInterval(() => {
      const nowMs = Date.now()
      if (!this.#isPaused) {
        this.#activeMs += nowMs - lastMs
        this.#tick(nowMs)
      }
      lastMs = nowMs
    }, TICK_MS)
    if (this.#isFullRate) this.#sendLarge()
  }

  /** Resolves when everything that was sent is acknowledged. */
  async pause() {
    this.#isPaused = true
    const deadline = Date.now() + DRAIN_LIMIT_MS
    while (this.inFlight > 0) {
      if (Date.now() > deadline) throw new BrokenBook(`${this.inFlight} requests are not acknowledged`)
      await sleep(POLL_MS)
    }
  }

  resume() {
    this.#isPaused = false
    if (this.#isFullRate) this.#sendLarge()
  }

  stop() {
    this.#isPaused = true
    clearInterval(this.#timer)
  }

  get inFlight() {
    return Object.values(this.#inFlight).reduce((sum, count) => sum + count, 0)
  }

  takeDropped() {
    const dropped = this.#dropped
    this.#dropped = 0
    return dropped
  }

  #tick(nowMs) {
    for (const [kind, rate] of Object.entries(RATES)) {
      const due = Math.floor((this.#activeMs * rate) / 1000)
      while (this.#started[kind] < due) {
        this.#started[kind] += 1
        this.#begin(kind)
      }
    }
    for (const work of this.#senders.redeliver(nowMs)) this.#follow('line', work)
  }

  /** To the last account, which has no endpoint. */
  #sendLarge() {
    while (!this.#isPaused && this.#inFlight.large < LARGE_IN_FLIGHT) {
      const work = this.#senders.large(this.#tenants.at(-1))
      this.#follow('large', work, () => this.#sendLarge())
    }
  }

  #begin(kind) {
    if (this.#inFlight[kind] >= IN_FLIGHT_MAX) {
      this.#dropped += 1
      return
    }
    const tenant = this.#random.pick(this.#tenants)
    if (kind === 'line' || kind === 'chat' || kind === 'tracking') {
      this.#follow(kind, this.#senders[kind](tenant))
      return
    }
    if (kind !== 'feed' && kind !== 'stream' && kind !== 'page') {
      this.#follow(kind, this.#clients[kind](tenant))
      return
    }
    const reader = `${kind} ${tenant.number}`
    if (this.#reading.has(reader)) return
    this.#reading.add(reader)
    this.#follow(
      kind,
      this.#clients[kind](tenant).finally(() => this.#reading.delete(reader)),
    )
  }

  #follow(kind, work, then = () => undefined) {
    this.#inFlight[kind] += 1
    work.catch(this.#onFault).finally(() => {
      this.#inFlight[kind] -= 1
      then()
    })
  }
}
