/** Follows stored events with one poller for all streams. It reads only committed rows, so it delays no flush. */

import type { Queryable } from '../../postgres/statement.ts'
import { lastEventId, prepareTail, readTail, type TailEvent } from '../events.ts'

const POLL_MS = 1_000
/** Rows read per poll, newest first. Further rows are counted as skipped. */
const ROWS_PER_POLL = 500
/**
 * Ids do not commit in order. A transaction of a request ends within 5 s, so all ids above the greatest one of 5 s ago are read again.
 */
const OVERLAP_POLLS = 6
/** Newest events that a page shows before the next ones arrive. */
const RECENT_MAX = 50
/** Polls between two summaries of the index. */
const PREPARE_POLLS = 10

export interface TailFrame {
  /** oldest first */
  events: TailEvent[]
  /** approximate number of events that are in no frame */
  skipped: number
}

export class LiveTail {
  readonly #database: Queryable
  readonly #onError: (error: Error) => void
  readonly #watchers = new Set<(frame: TailFrame) => void>()
  #recent: TailEvent[] = []
  #isPolling = false

  constructor(database: Queryable, onError: (error: Error) => void) {
    this.#database = database
    this.#onError = onError
  }

  get watcherCount(): number {
    return this.#watchers.size
  }

  /** @returns ends the watch; the poller stops after the last one */
  watch(watcher: (frame: TailFrame) => void): () => void {
    this.#watchers.add(watcher)
    if (this.#recent.length > 0) watcher({ events: this.#recent, skipped: 0 })
    if (!this.#isPolling) void this.#poll()
    return () => void this.#watchers.delete(watcher)
  }

  async #poll(): Promise<void> {
    this.#isPolling = true
    let seen: Seen | null = null
    let mustPrepare = true
    for (let poll = 1; this.#watchers.size > 0; poll += 1) {
      try {
        if (mustPrepare) await prepareTail(this.#database).catch(() => undefined)
        seen ??= new Seen((await lastEventId(this.#database)) - BigInt(RECENT_MAX))
        const frame = seen.newOf(await readTail(this.#database, seen.readAfter, ROWS_PER_POLL))
        mustPrepare = poll % PREPARE_POLLS === 0
        this.#recent = [...this.#recent, ...frame.events].slice(-RECENT_MAX)
        for (const watcher of this.#watchers) watcher(frame)
      } catch (error) {
        mustPrepare = true
        this.#onError(error as Error)
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS).unref())
    }
    this.#isPolling = false
    // The next watch would show a gap.
    this.#recent = []
  }
}

/** Tracks which events were already in a frame. */
class Seen {
  /** The greatest id at each of the last polls, oldest first. */
  readonly #greatest: bigint[]
  readonly #ids = new Set<bigint>()

  constructor(lastId: bigint) {
    this.#greatest = [lastId]
  }

  get readAfter(): bigint {
    return this.#greatest[0] as bigint
  }

  newOf(rows: TailEvent[]): TailFrame {
    const fresh = rows.filter(({ id }) => !this.#ids.has(id))
    const before = this.#greatest.at(-1) as bigint
    const greatest = fresh[0] !== undefined && fresh[0].id > before ? fresh[0].id : before
    // Ids have gaps, so this is an upper bound. It is only used if the rows did not fit.
    const passed = Number(greatest - before) - fresh.length
    const skipped = rows.length < ROWS_PER_POLL ? 0 : Math.max(0, passed)
    for (const { id } of fresh) this.#ids.add(id)
    this.#greatest.push(greatest)
    if (this.#greatest.length > OVERLAP_POLLS) this.#greatest.shift()
    for (const id of this.#ids) if (id <= this.readAfter) this.#ids.delete(id)
    return { events: fresh.reverse(), skipped }
  }
}
