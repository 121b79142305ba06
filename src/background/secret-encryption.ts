/** Encrypts secrets that other programs have stored as plain text, which also work before that. Runs in every instance. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import type { Transactions } from '../postgres/statement.ts'
import { changeSecrets } from '../secrets/change-secrets.ts'

/** A pass reads three tables, which have a row per account, endpoint and channel. */
const INTERVAL_MS = 20_000

export class SecretEncryption {
  readonly #database: Transactions
  readonly #log: FastifyBaseLogger
  readonly #intervalMs: number
  readonly #stopped = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(database: Transactions, log: FastifyBaseLogger, intervalMs = INTERVAL_MS) {
    this.#database = database
    this.#log = log
    this.#intervalMs = intervalMs
  }

  /** Without keys, there is nothing to do. */
  start(): void {
    if (this.#database.secretKeys.currentId !== null) this.#running = this.#run()
  }

  async stop(): Promise<void> {
    this.#stopped.abort()
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopped
    while (!signal.aborted) {
      // While the database is down, there is nothing to encrypt.
      await this.pass().catch(() => undefined)
      await sleep(this.#intervalMs, undefined, { signal }).catch(() => undefined)
    }
  }

  /** Returns the number of encrypted values. Throws DatabaseUnavailable. */
  async pass(): Promise<number> {
    const { values, refusedRows } = await changeSecrets(this.#database, 'selectPlain')
    if (values > 0) this.#log.info({ values }, 'encrypted secrets that were stored as plain text')
    if (refusedRows > 0)
      this.#log.warn({ rows: refusedRows }, 'PostgreSQL refused to store encrypted secrets')
    return values
  }
}
