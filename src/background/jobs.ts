/** Works on jobs: every instance takes turns of those that wait, one at a time in each lane, and sleeps while there are none. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../errors.ts'
import type { JobKind } from '../operator/jobs/job.ts'
import { LANES } from '../operator/jobs/kinds.ts'
import { type JobParts, takeTurn } from '../operator/jobs/turn.ts'
import type { Database } from '../postgres/database.ts'

/**
 * Pause while no job waits. It is short after a turn, because a job that paces itself continues soon, and doubles until it is IDLE_MS.
 * A console in the same process ends it with `wake`.
 */
const FIRST_PAUSE_MS = 25
const IDLE_MS = 3_000
/** A step may wait for LINE for half a minute, which is longer than a shutdown may take. */
const STOP_MAX_MS = 3_000

export class JobRunner {
  readonly #database: Database
  readonly #log: FastifyBaseLogger
  readonly #parts: Partial<JobParts>
  readonly #stopped = new AbortController()
  /** of each lane that sleeps */
  readonly #idle = new Set<AbortController>()
  #running: Promise<unknown> = Promise.resolve()

  constructor(database: Database, log: FastifyBaseLogger, parts: Partial<JobParts>) {
    this.#database = database
    this.#parts = parts
    this.#log = log
  }

  start(): void {
    this.#running = Promise.all(LANES.map((kinds) => this.#run(kinds)))
  }

  /** Resolves after the transaction in progress, if that ends soon. The next start, or another instance, continues. */
  async stop(): Promise<void> {
    this.#stopped.abort()
    this.wake()
    await Promise.race([this.#running, sleep(STOP_MAX_MS, undefined, { ref: false })])
  }

  /** A job was started in this process. */
  readonly wake = (): void => {
    for (const idle of this.#idle) idle.abort()
  }

  async #run(kinds: readonly JobKind[]): Promise<void> {
    let pauseMs = IDLE_MS
    while (!this.#stopped.signal.aborted) {
      // A job that is stored during the last look for one also ends the sleep.
      const idle = new AbortController()
      this.#idle.add(idle)
      const worked = await this.#takeTurn(kinds)
      if (worked) pauseMs = FIRST_PAUSE_MS
      else {
        await sleep(pauseMs, undefined, { signal: idle.signal }).catch(() => undefined)
        pauseMs = Math.min(IDLE_MS, 2 * pauseMs)
      }
      this.#idle.delete(idle)
    }
  }

  async #takeTurn(kinds: readonly JobKind[]): Promise<boolean> {
    try {
      return await takeTurn(this.#database, { ...this.#parts, kinds })
    } catch (error) {
      // While the database is down, there is nothing to do. Its messages may quote stored data.
      if (!(error instanceof AppError)) this.#log.error({ fault: (error as Error).name }, 'a task failed')
      return false
    }
  }
}
