/** Requests to the services over kept-alive connections, repeated until one of the wanted statuses arrives. */
import { Agent, request as httpRequest } from 'node:http'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

/** Longer than any statement, and than the time until the service gives one up. */
const RESPONSE_TIMEOUT_MS = 10_000
/** What a sender repeats: no answer, 429, and what a service answers while it or its database is down. */
const REPEATED = new Set([0, 429, 500, 502, 503, 504])
const PAUSE_MS = 100
const PAUSE_MAX_MS = 2_000
/** A restart of both takes some seconds. */
const GIVE_UP_MS = 180_000
const SOCKETS_MAX = 128

/** A book that is wrong, or an answer that no kill explains. It ends the run. */
export class BrokenBook extends Error {}

export class Requests {
  #urls
  #random
  #agent = new Agent({ keepAlive: true, maxSockets: SOCKETS_MAX })
  /** kind → milliseconds of the answered attempts since the last `take` */
  #latencies = new Map()
  #statuses = {}
  /** Longest time until a request was acknowledged, repetitions included, since the last `take`. */
  #longestMs = 0

  /** @param {string[]} urls of the services */
  constructor(urls, random) {
    this.#urls = urls
    this.#random = random
  }

  /**
   * @param {string} kind of the figures
   * @param {{method: string, path: string, headers: object, body?: string}} message
   * @param {number[]} wanted statuses
   * @returns {Promise<{status: number, body: string, attempts: number}>}
   */
  async until(kind, message, wanted) {
    const startedAt = performance.now()
    let instance = this.#random.below(this.#urls.length)
    for (let attempts = 1; ; attempts += 1) {
      const answer = await this.#once(kind, this.#urls[instance], message)
      if (wanted.includes(answer.status)) {
        this.#longestMs = Math.max(this.#longestMs, performance.now() - startedAt)
        return { ...answer, attempts }
      }
      const call = `${message.method} ${message.path}`
      if (!REPEATED.has(answer.status)) {
        throw new BrokenBook(`${call} was answered ${answer.status}: ${answer.body.slice(0, 300)}`)
      }
      if (performance.now() - startedAt > GIVE_UP_MS) {
        throw new BrokenBook(`${call} has not been accepted for ${GIVE_UP_MS / 1000} s: ${answer.status}`)
      }
      // As a load balancer does, the next attempt goes to the next instance.
      instance = (instance + 1) % this.#urls.length
      await sleep(Math.min(PAUSE_MAX_MS, PAUSE_MS * attempts))
    }
  }

  /** The figures since the last call. */
  take() {
    const taken = { latencies: this.#latencies, statuses: this.#statuses, longestMs: this.#longestMs }
    this.#latencies = new Map()
    this.#statuses = {}
    this.#longestMs = 0
    return taken
  }

  close() {
    this.#agent.destroy()
  }

  async #once(kind, url, message) {
    const startedAt = performance.now()
    const answer = await send(this.#agent, url, message).catch(() => ({ status: 0, body: '' }))
    this.#statuses[answer.status] = (this.#statuses[answer.status] ?? 0) + 1
    if (answer.status >= 200 && answer.status < 300) {
      if (!this.#latencies.has(kind)) this.#latencies.set(kind, [])
      this.#latencies.get(kind).push(performance.now() - startedAt)
    }
    return answer
  }
}

function send(agent, url, { method, path, headers, body }) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }
    const request = httpRequest(
      url + path,
      { agent, method, headers: { ...headers, ...length } },
      (response) => {
        const chunks = []
        response.on('data', (chunk) => chunks.push(chunk))
        response.on('error', reject)
        // A stream that is cut off has no end.
        response.on('close', () => {
          if (response.complete)
            resolve({ status: response.statusCode, body: Buffer.concat(chunks).toString() })
          else reject(new Error('the response was cut off'))
        })
      },
    )
    request.setTimeout(RESPONSE_TIMEOUT_MS, () => request.destroy(new Error('no answer')))
    request.on('error', reject)
    request.end(body)
  })
}
