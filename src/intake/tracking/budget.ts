/**
 * What one client address, and one tracking key, may send in a minute. The key is public, so without these budgets anybody
 * could fill the disk and keep the database busy.
 */
import { LRUCache } from 'lru-cache'
import type { Budget } from '../../config.ts'
import { AppError } from '../../errors.ts'

const WINDOW_MS = 60_000
/** Windows kept, about 20 MiB. Beyond it the least recently used window is dropped. */
const WINDOWS_MAX = 100_000

interface Window {
  startedAtMs: number
  events: number
  bytes: number
}

/** Fixed windows of a minute in this process. Each begins with the first request of its sender. */
export class Budgets {
  readonly #windows = new LRUCache<string, Window>({ max: WINDOWS_MAX })
  readonly #eventsMax: number
  readonly #bytesMax: number
  readonly #message: string

  /** @param sender completes the message "Too many tracking events from …" */
  constructor({ eventsPerMinute, bytesPerMinute }: Budget, sender: string) {
    this.#eventsMax = eventsPerMinute || Number.POSITIVE_INFINITY
    this.#bytesMax = bytesPerMinute || Number.POSITIVE_INFINITY
    this.#message = `Too many tracking events from this ${sender}: ${eventsPerMinute} events and ${bytesPerMinute} bytes per minute are accepted`
  }

  /** Takes events and bytes from the sender's budget. Throws `tracking_budget_exceeded`, with nothing taken. */
  take(sender: string, events: number, bytes: number): void {
    const window = this.#windowOf(sender)
    this.#check(window, events, bytes)
    window.events += events
    window.bytes += bytes
  }

  /** Throws as `take` would. */
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
