/** Works on jobs: every instance takes turns of those that wait, one at a time, and sleeps while there are none. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../errors.ts'
import type { Platform } from '../operator/jobs/step.ts'
import { takeTurn } from '../operator/jobs/turn.ts'
import type { Database } from '../postgres/database.ts'

/** Pause while no job waits. A console in the same process ends it with `wake`. */
const IDLE_MS = 3_000

export class JobRunner {
  readonly #database: Database
  readonly #log: FastifyBaseLogger
  readonly #platform: Platform | null
  readonly #stopped = new AbortController()
  #idle = new AbortController()
  #running: Promise<void> = Promise.resolve()

  /** @param platform null: no job that calls LINE can run */
  constructor(database: Database, log: FastifyBaseLogger, platform: Platform | null = null) {
    this.#database = database
    this.#platform = platform
    this.#log = log
  }

  start(): void {
    this.#running = this.#run()
  }

  /** Resolves after the transaction in progress. The next start, or another instance, continues. */
  async stop(): Promise<void> {
    this.#stopped.abort()
    this.#idle.abort()
    await this.#running
  }

  /** A job was started in this process. */
  readonly wake = (): void => this.#idle.abort()

  async #run(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      this.#idle = new AbortController()
      const worked = await this.#takeTurn()
      if (!worked) await sleep(IDLE_MS, undefined, { signal: this.#idle.signal }).catch(() => undefined)
    }
  }

  async #takeTurn(): Promise<boolean> {
    try {
      return await takeTurn(this.#database, undefined, this.#platform)
    } catch (error) {
      // While the database is down, there is nothing to do. Its messages may quote stored data.
      if (!(error instanceof AppError)) this.#log.error({ fault: (error as Error).name }, 'a task failed')
      return false
    }
  }
}
