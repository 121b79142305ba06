import type { FastifyBaseLogger } from 'fastify'

/** Buffers log lines until the log exists, for example those of the opening of the database. */
export class Notices {
  readonly #waiting: Array<(log: FastifyBaseLogger) => void> = []
  #log: FastifyBaseLogger | null = null

  readonly info = (message: string) => this.#write((log) => log.info(message))
  readonly warn = (message: string) => this.#write((log) => log.warn(message))

  sendTo(log: FastifyBaseLogger): void {
    this.#log = log
    for (const write of this.#waiting.splice(0)) write(log)
  }

  #write(write: (log: FastifyBaseLogger) => void): void {
    if (this.#log === null) this.#waiting.push(write)
    else write(this.#log)
  }
}
