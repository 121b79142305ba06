/** Signed deliveries over https, each repeated until it is accepted, as LINE repeats them. */
import { Agent, request } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, lineEvent, randomUserId } from '../../tools/simulator/events.ts'

const SENDERS = 6
const PAUSE_MS = 20
const RETRY_MS = 1_000
const TIMEOUT_MS = 5_000
const RETRIES_MAX = 60

interface Target {
  port: number
  ca: string
  path: string
  channelSecret: string
}

export class RetryingLoad {
  readonly #target: Target
  readonly #agent: Agent
  readonly #senders: Array<Promise<void>>
  #isStopped = false
  /** Each user id occurs in one delivery. */
  readonly acknowledged: string[] = []
  /** Failures of the delivery that needed most retries since the last `takeWorst`. */
  worst: string[] = []

  constructor(target: Target) {
    this.#target = target
    this.#agent = new Agent({ keepAlive: true, ca: target.ca })
    this.#senders = Array.from({ length: SENDERS }, () => this.#send())
  }

  /** Resolves after this number of further deliveries. */
  async deliver(count: number): Promise<void> {
    const goal = this.acknowledged.length + count
    while (this.acknowledged.length < goal) {
      if (this.worst.length > RETRIES_MAX) throw new Error(`a delivery failed: ${this.worst.join(', ')}`)
      await sleep(PAUSE_MS)
    }
  }

  /** Returns `worst`, and begins again. */
  takeWorst(): string[] {
    const { worst } = this
    this.worst = []
    return worst
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all(this.#senders)
    this.#agent.destroy()
  }

  async #send(): Promise<void> {
    while (!this.#isStopped) {
      const userId = randomUserId()
      const body = lineBody('U00000000000000000000000000000000', [lineEvent('follow', userId)])
      const failures: string[] = []
      for (;;) {
        const outcome = await this.#post(body)
        if (outcome === '200') break
        failures.push(outcome)
        if (failures.length > this.worst.length) this.worst = failures
        if (failures.length > RETRIES_MAX) return
        await sleep(RETRY_MS)
      }
      this.acknowledged.push(userId)
      await sleep(PAUSE_MS)
    }
  }

  #post(body: string): Promise<string> {
    const { port, path, channelSecret } = this.#target
    const headers = {
      'x-line-signature': signLine(body, new Secret(channelSecret)),
      'content-length': Buffer.byteLength(body),
    }
    return new Promise((resolve) => {
      const options = {
        host: 'localhost',
        family: 4,
        port,
        path,
        method: 'POST',
        headers,
        agent: this.#agent,
      }
      request({ ...options, timeout: TIMEOUT_MS }, (response) => {
        response
          .resume()
          .on('error', ({ message }) => resolve(message))
          .on('end', () => resolve(String(response.statusCode)))
      })
        .on('timeout', function (this: { destroy: (error: Error) => void }) {
          this.destroy(new Error('timeout'))
        })
        .on('error', ({ message }) => resolve(message))
        .end(body)
    })
  }
}
