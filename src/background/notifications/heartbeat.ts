/**
 * Requests HEARTBEAT_URL once a minute while the database stores. A watchdog outside, such as healthchecks.io, alerts when the requests
 * stop. The statement that chooses the process of this minute is a proof: it has committed. It needs no room on the disk, as a delivery
 * does. So a process whose last delivery could not be stored takes every turn, also those of others, and requests nothing.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import type { Secret } from '../../config/secret.ts'
import { every, type Repetition } from '../../every.ts'
import { heartbeatSent } from '../../observability/facts.ts'
import type { Database } from '../../postgres/database.ts'
import { statement } from '../../postgres/statement.ts'

/** Each process tries so often, and one of them has its turn after 55 s. So there are 55 to 65 s between two requests. */
const TRY_INTERVAL_MS = 10_000
const REQUEST_TIMEOUT_MS = 10_000
const RETRY_MS = 10_000
/** A database that does not respond may hold the statement for longer than a shutdown may take. */
const STOP_MAX_MS = 3_000

/** Returns one row in one process of each minute. */
const beat = statement('beat-heart')`
    update notification_watch set heartbeat_at = now()
     where is_due(heartbeat_at + interval '55 seconds', interval '55 seconds')
    returning true as "isChosen"`

const skipBeat = statement('skip-heart-beat')`update notification_watch set heartbeat_at = now()`

export interface HeartbeatIntervals {
  tryMs: number
  retryMs: number
}

type Beating = Pick<Database, 'query' | 'state'>

export class Heartbeat {
  readonly #database: Beating
  readonly #url: Secret
  readonly #log: FastifyBaseLogger
  readonly #intervals: HeartbeatIntervals
  #repetition: Repetition | null = null
  #hasFailed = false

  constructor(
    database: Beating,
    url: Secret,
    log: FastifyBaseLogger,
    intervals: Partial<HeartbeatIntervals> = {},
  ) {
    this.#database = database
    this.#url = url
    this.#log = log
    this.#intervals = { tryMs: TRY_INTERVAL_MS, retryMs: RETRY_MS, ...intervals }
  }

  start(): void {
    this.#repetition = every(this.#intervals.tryMs, async (signal) => {
      // If the database does not store, nothing is requested.
      const isFailing = (await this.#database.state()) === 'failing'
      const chosen = await this.#database.query(isFailing ? skipBeat : beat)
      if (chosen.length > 0) await this.#send(signal)
    })
  }

  async stop(): Promise<void> {
    await this.#repetition?.stop(STOP_MAX_MS)
  }

  async #send(signal: AbortSignal): Promise<void> {
    let isAccepted = await this.#request(signal)
    if (!isAccepted && !signal.aborted) {
      await sleep(this.#intervals.retryMs, undefined, { signal }).catch(() => undefined)
      if (!signal.aborted) isAccepted = await this.#request(signal)
    }
    if (signal.aborted) return
    heartbeatSent.publish({ outcome: isAccepted ? 'accepted' : 'failed' })
    if (!isAccepted && !this.#hasFailed)
      this.#log.warn('HEARTBEAT_URL does not accept requests; its watchdog may report an outage')
    if (isAccepted && this.#hasFailed) this.#log.info('HEARTBEAT_URL accepts requests again')
    this.#hasFailed = !isAccepted
  }

  /** Never rejects. Its errors may contain the URL, whose path is usually a token. */
  async #request(stopped: AbortSignal): Promise<boolean> {
    try {
      const signal = AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), stopped])
      const response = await fetch(this.#url.reveal(), { redirect: 'manual', signal })
      await response.body?.cancel()
      return response.ok
    } catch {
      return false
    }
  }
}
