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
import { type EndpointResponse, notSent, outcomeOf, UNREADABLE_SECRET } from '../../endpoints/post.ts'
import { every, type Stop } from '../../jobs/every.ts'
import { notificationResponded } from '../../observability/facts.ts'
import type { Transactions } from '../../postgres/statement.ts'
import { pauseGone } from './channels.ts'
import { loadNotifications, loadTarget, type NotificationTarget } from './content.ts'
import {
  type Claim,
  claimNotifications,
  dropNotification,
  expireNotifications,
  LEASE_SECONDS,
  storeResult,
} from './queue.ts'
import type { NotificationSender } from './send.ts'

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

/** Returns a function that claims nothing more, and waits up to STOP_MAX_MS for requests in flight. */
export function startOutbox(
  database: Transactions,
  send: NotificationSender,
  log: FastifyBaseLogger,
  { pollMs = POLL_MS, storeRetryMs = STORE_RETRY_MS } = {},
): Stop {
  /** by channel */
  const inFlight = new Map<bigint, Promise<void>>()
  let isStopped = false
  let maintainedAtMs = Number.NEGATIVE_INFINITY
  // While the database is down, there is nothing to send.
  const repetition = every(pollMs, async () => {
    if (performance.now() - maintainedAtMs > MAINTENANCE_INTERVAL_MS) {
      await expireNotifications(database)
      maintainedAtMs = performance.now()
    }
    const free = IN_FLIGHT_MAX - inFlight.size
    if (free === 0) return
    for (const claim of await claimNotifications(database, free, [...inFlight.keys()])) {
      const sending = attempt(claim).finally(() => {
        inFlight.delete(claim.channelId)
        // The channel may have another message.
        repetition.wake()
      })
      inFlight.set(claim.channelId, sending)
    }
  })

  /** Never rejects. */
  async function attempt(claim: Claim): Promise<void> {
    const endsAtMs = performance.now() + LEASE_SECONDS * 1000
    try {
      const target = await loadTarget(database, claim.channelId)
      const [notification] = await loadNotifications(database, [claim.id])
      // Removed with its channel or organization.
      if (target === null || notification === undefined) return
      // All accounts that it is about were removed.
      if (notification.accountCount === 0 && ABOUT_ACCOUNTS.includes(notification.kind))
        return await dropNotification(database, claim)
      const response = await send(notification, target).catch((error: Error) => {
        log.error({ fault: error.name, kind: notification.kind }, 'a notification could not be written')
        return notSent('the message could not be written')
      })
      notificationResponded.publish({ format: target.format, outcome: outcomeOf(response) })
      await store(claim, target, response, endsAtMs)
    } catch (error) {
      // An operator can add the key, or store the target again. If the database is down, the lease ends.
      if (error instanceof UnreadableSecret)
        return await storeResult(database, claim, notSent(UNREADABLE_SECRET)).catch(() => undefined)
      // The database is down, or refuses the result. The lease ends, and the message is repeated.
      log.warn({ fault: (error as Error).name }, 'the result of a notification was not stored')
    }
  }

  /** While the database is down, the result is stored again until the lease ends. */
  async function store(
    claim: Claim,
    { id, format }: NotificationTarget,
    response: EndpointResponse,
    endsAtMs: number,
  ): Promise<void> {
    for (;;) {
      try {
        if (response.status === GONE && format !== 'email') await pauseGone(database, id)
        return await storeResult(database, claim, response)
      } catch (error) {
        if (performance.now() > endsAtMs || isStopped) throw error
        await sleep(storeRetryMs)
      }
    }
  }

  return async () => {
    isStopped = true
    const ended = repetition.stop().then(() => Promise.all(inFlight.values()))
    await Promise.race([ended, sleep(STOP_MAX_MS, undefined, { ref: false })])
  }
}

const ABOUT_ACCOUNTS: string[] = ['problem', 'recovery', 'reminder']
