/**
 * Sends notifications. Every instance does, and they share the work:
 *
 * 1. Claim: one message of each channel to which nobody sends, with a lease.
 * 2. Read the message, its channel and its accounts as they are now.
 * 3. Send it. A receiver that hangs delays only its own channel.
 * 4. Store the result. A process that is killed before has sent the message, and another one repeats it: one message per channel.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { UnreadableSecret } from '../../config/secret-keys.ts'
import { type EndpointResponse, isAccepted, UNREADABLE_SECRET } from '../../endpoints/post.ts'
import { every, type Repetition } from '../../every.ts'
import { notificationResponded } from '../../observability/facts.ts'
import {
  loadNotifications,
  loadTarget,
  type NotificationTarget,
} from '../../operator/notifications/content.ts'
import { pauseGone } from '../../operator/notifications/manage-channels.ts'
import type { NotificationSender } from '../../operator/notifications/send.ts'
import type { Transactions } from '../../postgres/statement.ts'
import {
  type Claim,
  claimNotifications,
  completeNotification,
  dropNotification,
  expireNotifications,
  LEASE_SECONDS,
  postponeNotification,
} from './queue.ts'

const POLL_MS = 1_000
const MAINTENANCE_INTERVAL_MS = 60_000
/** Channels to which this process sends at the same time. */
const IN_FLIGHT_MAX = 16
/** Pause before a result is stored again, while the database is down. */
const STORE_RETRY_MS = 1_000
/** A request takes up to 10 s, which is longer than a shutdown may take. After that, the lease ends, and the message is repeated. */
const STOP_MAX_MS = 3_000

/** The receiver wants no more messages. */
const GONE = 410

export interface OutboxIntervals {
  pollMs: number
  storeRetryMs: number
}

export class Outbox {
  readonly #database: Transactions
  readonly #sender: NotificationSender
  readonly #log: FastifyBaseLogger
  readonly #intervals: OutboxIntervals
  /** by channel */
  readonly #inFlight = new Map<bigint, Promise<void>>()
  #repetition: Repetition | null = null
  #isStopped = false
  #maintainedAtMs = Number.NEGATIVE_INFINITY

  constructor(
    database: Transactions,
    sender: NotificationSender,
    log: FastifyBaseLogger,
    intervals: Partial<OutboxIntervals> = {},
  ) {
    this.#database = database
    this.#sender = sender
    this.#log = log
    this.#intervals = { pollMs: POLL_MS, storeRetryMs: STORE_RETRY_MS, ...intervals }
  }

  start(): void {
    // While the database is down, there is nothing to send.
    this.#repetition = every(this.#intervals.pollMs, () => this.#claim())
  }

  /** Claims nothing more, and waits up to STOP_MAX_MS for requests in flight. */
  async stop(): Promise<void> {
    this.#isStopped = true
    const ended = this.#repetition?.stop().then(() => Promise.all(this.#inFlight.values()))
    await Promise.race([ended, sleep(STOP_MAX_MS, undefined, { ref: false })])
  }

  async #claim(): Promise<void> {
    if (performance.now() - this.#maintainedAtMs > MAINTENANCE_INTERVAL_MS) {
      await expireNotifications(this.#database)
      this.#maintainedAtMs = performance.now()
    }
    const free = IN_FLIGHT_MAX - this.#inFlight.size
    if (free === 0) return
    for (const claim of await claimNotifications(this.#database, free, [...this.#inFlight.keys()])) {
      const sending = this.#attempt(claim).finally(() => {
        this.#inFlight.delete(claim.channelId)
        // The channel may have another message.
        this.#repetition?.wake()
      })
      this.#inFlight.set(claim.channelId, sending)
    }
  }

  /** Never rejects. */
  async #attempt(claim: Claim): Promise<void> {
    const endsAtMs = performance.now() + LEASE_SECONDS * 1000
    try {
      const target = await loadTarget(this.#database, claim.channelId)
      const [notification] = await loadNotifications(this.#database, [claim.id])
      // Removed with its channel or organization.
      if (target === null || notification === undefined) return
      if (notification.accountCount === 0 && ABOUT_ACCOUNTS.includes(notification.kind)) {
        // All of them were removed.
        return await dropNotification(this.#database, claim)
      }
      const response = await this.#sender.send(notification, target).catch((error: Error) => {
        this.#log.error({ fault: error.name, kind: notification.kind }, 'a notification could not be written')
        return { status: null, reason: 'the message could not be written', retryAfterMs: null }
      })
      publish(target, response)
      await this.#store(claim, target, response, endsAtMs)
    } catch (error) {
      if (error instanceof UnreadableSecret) return await this.#postponeUnreadable(claim)
      // The database is down, or refuses the result. The lease ends, and the message is repeated.
      this.#log.warn({ fault: (error as Error).name }, 'the result of a notification was not stored')
    }
  }

  /** An operator can add the key, or store the target again. */
  async #postponeUnreadable(claim: Claim): Promise<void> {
    const response = { status: null, reason: UNREADABLE_SECRET, retryAfterMs: null }
    // If the database is down, the lease ends.
    await postponeNotification(this.#database, claim, response).catch(() => undefined)
  }

  /** While the database is down, the result is stored again until the lease ends. */
  async #store(
    claim: Claim,
    target: NotificationTarget,
    response: EndpointResponse,
    endsAtMs: number,
  ): Promise<void> {
    for (;;) {
      try {
        if (isAccepted(response)) return await completeNotification(this.#database, claim, response)
        if (response.status === GONE && target.format !== 'email') await pauseGone(this.#database, target.id)
        return await postponeNotification(this.#database, claim, response)
      } catch (error) {
        if (performance.now() > endsAtMs || this.#isStopped) throw error
        await sleep(this.#intervals.storeRetryMs)
      }
    }
  }
}

const ABOUT_ACCOUNTS: string[] = ['problem', 'recovery', 'reminder']

function publish({ format }: NotificationTarget, response: EndpointResponse): void {
  const outcome = isAccepted(response) ? 'accepted' : response.status === null ? 'no_response' : 'rejected'
  notificationResponded.publish({ format, outcome })
}
