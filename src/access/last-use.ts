/**
 * Records when clients and keys were last used. Requests do not wait for it. The guard's query reports whether a time is older than an
 * hour. One statement at a time writes all due times, so concurrent requests with due times cause only a few statements.
 */
import type { Database } from '../postgres/database.ts'
import { statement } from '../postgres/statement.ts'

/** After a failed write, such as on a full disk, requests do not cause another one for this long. */
const PAUSE_AFTER_FAILURE_MS = 60_000

/** Every request evaluates it, so it is one comparison. A future time of another program stays until an hour after it. */
export const isUseDue = (lastUsedAt: string) => `(${lastUsedAt} > now() - interval '1 hour') is not true`

/**
 * Each row is written by the first of several instances: the others skip it while it is locked, and then find that it is not due. No
 * index contains the column, so an update changes no index.
 *
 * $1 client ids bigint[], $2 key ids bigint[]
 */
const recordUse = statement('record-use-of-credentials')`
    with due_client as (
      select id from api_client where id = any ($1) and ${isUseDue('last_used_at')} for no key update skip locked
    ), due_key as (
      select id from api_key where id = any ($2) and ${isUseDue('last_used_at')} for no key update skip locked
    ), used_client as (
      update api_client c set last_used_at = now() from due_client due where c.id = due.id
    )
    update api_key k set last_used_at = now() from due_key due where k.id = due.id`

export class LastUse {
  readonly #database: Database
  readonly #now: () => number
  readonly #clientIds = new Set<bigint>()
  readonly #keyIds = new Set<bigint>()
  #isWriting = false
  #pausedUntilMs = Number.NEGATIVE_INFINITY

  constructor(database: Database, now: () => number) {
    this.#database = database
    this.#now = now
  }

  /** Never throws, and returns before the use is written. */
  note(clientId: bigint, keyId: bigint | null): void {
    if (this.#now() < this.#pausedUntilMs) return
    this.#clientIds.add(clientId)
    if (keyId !== null) this.#keyIds.add(keyId)
    if (!this.#isWriting) void this.#write()
  }

  async #write(): Promise<void> {
    this.#isWriting = true
    try {
      while (this.#clientIds.size > 0) {
        const values = [[...this.#clientIds], [...this.#keyIds]]
        this.#forget()
        await this.#database.query(recordUse, values)
      }
    } catch {
      this.#forget()
      this.#pausedUntilMs = this.#now() + PAUSE_AFTER_FAILURE_MS
    } finally {
      this.#isWriting = false
    }
  }

  #forget(): void {
    this.#clientIds.clear()
    this.#keyIds.clear()
  }
}
