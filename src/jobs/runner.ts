/** Runs jobs in turns, one lane for each group of kinds. */
import type { FastifyBaseLogger } from 'fastify'
import { AppError } from '../errors.ts'
import { every, type Repetition } from '../every.ts'
import type { Database } from '../postgres/database.ts'
import type { JobKind } from './job.ts'
import { LANES } from './kinds.ts'
import { type JobParts, takeTurn } from './turn.ts'

/**
 * Pause while no job waits. It is short after a turn, because a job that paces itself continues soon, and doubles until it is IDLE_MS.
 * A console in the same process ends it with `wake`.
 */
const FIRST_PAUSE_MS = 25
const IDLE_MS = 3_000

export class JobRunner {
  readonly #database: Database
  readonly #log: FastifyBaseLogger
  readonly #parts: Partial<JobParts>
  #lanes: Repetition[] = []

  constructor(database: Database, log: FastifyBaseLogger, parts: Partial<JobParts>) {
    this.#database = database
    this.#parts = parts
    this.#log = log
  }

  start(): void {
    this.#lanes = LANES.map((kinds) => {
      let pauseMs = IDLE_MS
      return every('jobs', IDLE_MS, async () => {
        const hasWorked = await this.#takeTurn(kinds)
        const currentMs = hasWorked ? 0 : pauseMs
        pauseMs = hasWorked ? FIRST_PAUSE_MS : Math.min(IDLE_MS, 2 * pauseMs)
        return currentMs
      })
    })
  }

  /** Resolves after the transaction in progress, if that ends soon. The next start, or another instance, continues. */
  async stop(): Promise<void> {
    await Promise.all(this.#lanes.map(({ stop }) => stop()))
  }

  readonly wake = (): void => {
    for (const { wake } of this.#lanes) wake()
  }

  async #takeTurn(kinds: readonly JobKind[]): Promise<boolean> {
    try {
      return (await takeTurn(this.#database, { ...this.#parts, kinds })) !== false
    } catch (error) {
      // While the database is down, there is nothing to do. Its messages may quote stored data.
      if (!(error instanceof AppError)) this.#log.error({ fault: (error as Error).name }, 'a job failed')
      return false
    }
  }
}
