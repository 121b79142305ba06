/** A client that retries each request until an instance returns a wanted status, as LINE and careful clients do. */
import { setTimeout as sleep } from 'node:timers/promises'

/** Longer than any statement and the time after which the service gives the statement up. */
const RESPONSE_TIMEOUT_MS = 8_000
const RETRY_MS = 50

export interface Reply {
  /** 0: no answer */
  status: number
  body: string
}

export class RetryingClient {
  readonly #inService: Set<string>
  isClosed = false
  /** Number of answers by status. */
  readonly statuses: Record<number, number> = {}
  /** Requests without an answer, and answers of 500 and more. */
  readonly failures: Array<{ url: string; path: string; status: number; body: string }> = []

  constructor(urls: string[]) {
    this.#inService = new Set(urls)
  }

  /** The instances that receive requests. */
  get urls(): string[] {
    return [...this.#inService]
  }

  /** Sends the instance nothing more, as a load balancer does before the instance is stopped. */
  takeOutOfService(url: string): void {
    this.#inService.delete(url)
  }

  putIntoService(url: string): void {
    this.#inService.add(url)
  }

  /** Ends all retries. Without it, the load of a failed test would go on beside the next one. */
  close(): void {
    this.isClosed = true
  }

  async until(path: string, init: RequestInit, wanted: number[]): Promise<Reply> {
    while (!this.isClosed) {
      const { urls } = this
      const url = urls[Math.floor(Math.random() * urls.length)] as string
      const reply = await this.send(url, path, init)
      if (wanted.includes(reply.status)) return reply
      await sleep(RETRY_MS)
    }
    throw new Error(`the test ended before ${path} was answered`)
  }

  async send(url: string, path: string, init: RequestInit): Promise<Reply> {
    const signal = AbortSignal.timeout(RESPONSE_TIMEOUT_MS)
    const reply = await fetch(url + path, { ...init, signal })
      .then(async (answer) => ({ status: answer.status, body: await answer.text() }))
      .catch((error) => ({ status: 0, body: String(error.cause ?? error) }))
    const { status } = reply
    this.statuses[status] = (this.statuses[status] ?? 0) + 1
    if (status === 0 || status >= 500) this.failures.push({ url, path, ...reply })
    return reply
  }
}
