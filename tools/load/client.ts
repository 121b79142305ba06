/** A client that retries each request until an instance returns a wanted status, as LINE, load balancers and careful clients do. */
import { setTimeout as sleep } from 'node:timers/promises'

/** Longer than any statement and the time after which the service gives the statement up. */
const RESPONSE_TIMEOUT_MS = 8_000
const RETRY_MS = 50
const RETRY_MAX_MS = 500
/** A restart of the service and PostgreSQL takes some seconds. */
const GIVE_UP_MS = 180_000
const FAILURES_MAX = 1_000

interface Reply {
  /** 0: no response */
  status: number
  body: string
}

export class RetryingClient {
  readonly #inService: Set<string>
  readonly #timeoutMs: number
  isClosed = false
  /** requests that were sent again */
  repeated = 0
  /** number of responses by status */
  readonly statuses: Record<number, number> = {}
  /** the first requests without a response, or with one of 500 and more */
  readonly failures: Array<{ url: string; path: string; status: number; body: string }> = []
  onResponse: (kind: string, status: number, tookMs: number) => void = () => undefined

  constructor(urls: string[], timeoutMs = RESPONSE_TIMEOUT_MS) {
    this.#inService = new Set(urls)
    this.#timeoutMs = timeoutMs
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

  /** Ends all retries. Without it, the load of a failed run would go on beside the next one. */
  close(): void {
    this.isClosed = true
  }

  /** Each attempt goes to a random instance. */
  async until(kind: string, path: string, init: RequestInit, wanted: number[]): Promise<Reply> {
    const startedAtMs = performance.now()
    for (let attempts = 1; !this.isClosed; attempts += 1) {
      const { urls } = this
      const url = urls[Math.floor(Math.random() * urls.length)] as string
      const reply = await this.send(kind, url, path, init)
      if (wanted.includes(reply.status)) return reply
      if (performance.now() - startedAtMs > GIVE_UP_MS) {
        const last = `${reply.status} ${reply.body.slice(0, 300)}`
        throw new Error(
          `${init.method ?? 'GET'} ${path} was not accepted for ${GIVE_UP_MS / 1000} s: ${last}`,
        )
      }
      this.repeated += 1
      await sleep(Math.min(RETRY_MS * attempts, RETRY_MAX_MS))
    }
    throw new Error(`the run ended before ${path} was accepted`)
  }

  async send(kind: string, url: string, path: string, init: RequestInit): Promise<Reply> {
    const startedAtMs = performance.now()
    const signal = AbortSignal.timeout(this.#timeoutMs)
    const reply = await fetch(url + path, { ...init, signal })
      .then(async (response) => ({ status: response.status, body: await response.text() }))
      .catch((error) => ({ status: 0, body: String(error.cause ?? error) }))
    const { status } = reply
    this.onResponse(kind, status, performance.now() - startedAtMs)
    this.statuses[status] = (this.statuses[status] ?? 0) + 1
    if ((status === 0 || status >= 500) && this.failures.length < FAILURES_MAX) {
      this.failures.push({ url, path, ...reply })
    }
    return reply
  }
}
