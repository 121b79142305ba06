/**
 * Limits the events and bytes per minute of each client address and each tracking key. The key is public, so without limits anybody
 * could fill the disk and keep the database busy. An address is charged for everything that it sends. A key is charged only for what
 * is stored. Otherwise anybody could use up a site's budget with invalid requests.
 */
import { LRUCache } from 'lru-cache'
import type { Budget } from '../../config/limits.ts'
import { AppError } from '../../errors.ts'

const WINDOW_MS = 60_000
/** About 20 MiB. Beyond it, the least recently used window is dropped. */
const WINDOWS_MAX = 100_000

export interface Usage {
  events: number
  bytes: number
}

/** Returns a share, from 0 to 1, of what was taken. */
export type GiveBack = (share: number) => void

interface Window extends Usage {
  startedAtMs: number
}

/** Fixed windows of a minute, in this process. Each begins with the first request of its sender. */
export class Budgets {
  readonly #windows = new LRUCache<string, Window>({ max: WINDOWS_MAX })
  readonly #eventsMax: number
  readonly #bytesMax: number
  readonly #message: string

  /** @param sender completes the message "Too many tracking events from …" */
  constructor({ eventsPerMinute, bytesPerMinute }: Budget, sender: string) {
    this.#eventsMax = eventsPerMinute
    this.#bytesMax = bytesPerMinute
    this.#message = `Too many tracking events from this ${sender}: ${eventsPerMinute} events and ${bytesPerMinute} bytes per minute are accepted`
  }

  /** Takes events and bytes from the sender's budget. Throws `tracking_budget_exceeded` without taking anything. */
  take(sender: string, events: number, bytes: number): GiveBack {
    const window = this.#windowOf(sender)
    this.#check(window, events, bytes)
    window.events += events
    window.bytes += bytes
    return (share) => {
      window.events -= share * events
      window.bytes -= share * bytes
    }
  }

  /** Takes bytes for work that is already done. Throws `tracking_budget_exceeded` after taking them. */
  spend(sender: string, bytes: number): void {
    const window = this.#windowOf(sender)
    const isExceeded = window.bytes + bytes > this.#bytesMax
    window.bytes += bytes
    if (isExceeded) this.#check(window, 0, 0)
  }

  /** Throws as `take` would, and takes nothing. */
  check(sender: string, events: number, bytes: number): void {
    this.#check(this.#windowOf(sender), events, bytes)
  }

  #windowOf(sender: string): Window {
    // A monotonic clock: the time of day can be set back.
    const now = performance.now()
    const window = this.#windows.get(sender)
    if (window !== undefined && now - window.startedAtMs < WINDOW_MS) return window
    const started = { startedAtMs: now, events: 0, bytes: 0 }
    this.#windows.set(sender, started)
    return started
  }

  #check(window: Window, events: number, bytes: number): void {
    if (window.events + events <= this.#eventsMax && window.bytes + bytes <= this.#bytesMax) return
    const leftMs = window.startedAtMs + WINDOW_MS - performance.now()
    throw new AppError('tracking_budget_exceeded', {
      message: this.#message,
      retryAfterSeconds: Math.max(1, Math.ceil(leftMs / 1000)),
    })
  }
}

/** Each tracking key has separate budgets for proven and unproven events, so a flood of unproven events does not block proven ones. */
export class KeyBudgets {
  readonly #claimed: Budgets
  readonly #proven: Budgets

  constructor(budget: Budget) {
    this.#claimed = new Budgets(budget, 'tracking key')
    this.#proven = new Budgets(budget, 'tracking key')
  }

  /** Throws if no unproven event can be stored. Requests without tokens are checked before their events are read. */
  checkClaimed(key: string): void {
    this.#claimed.check(key, 1, 0)
  }

  /** Throws `tracking_budget_exceeded` without taking anything. */
  take(key: string, claimed: Usage, proven: Usage): GiveBack {
    this.#proven.check(key, proven.events, proven.bytes)
    const taken = [
      this.#claimed.take(key, claimed.events, claimed.bytes),
      this.#proven.take(key, proven.events, proven.bytes),
    ]
    return (share) => {
      for (const giveBack of taken) giveBack(share)
    }
  }
}
