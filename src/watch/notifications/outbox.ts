/**
 * Sends notifications. Every instance does, and they share the work:
 *
 * 1. Claim one message of each channel to which nobody sends, with a lease.
 * 2. Read the message, its channel and its accounts as they are now, and send it.
 * 3. Store the result. If this fails, or the process is killed before, the lease ends, and the message is repeated: one per channel.
 *
 * Planner idioms: docs/planner.md.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { UnreadableSecret } from '../../config/secret-keys.ts'
import {
  type EndpointResponse,
  isAccepted,
  notSent,
  outcomeOf,
  UNREADABLE_SECRET,
} from '../../endpoints/post.ts'
import { retryDelayMs } from '../../endpoints/settlements.ts'
import { every, STOP_MAX_MS, type Stop } from '../../every.ts'
import { notificationResponded } from '../../observability/facts.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { toStorableText } from '../../postgres/storable.ts'
import { pauseGone } from './channels.ts'
import { loadNotification, loadTarget } from './content.ts'
import type { NotificationSender } from './send.ts'

const POLL_MS = 1_000
const IN_FLIGHT_MAX = 16
/** The receiver wants no more messages. */
const GONE = 410
const ABOUT_ACCOUNTS: string[] = ['problem', 'recovery', 'reminder']

export function startOutbox(
  database: Transactions,
  send: NotificationSender,
  log: FastifyBaseLogger,
  { pollMs = POLL_MS } = {},
): Stop {
  const inFlight = new Map<bigint, Promise<void>>()
  const repetition = every('notifications', pollMs, async () => {
    await database.query(expire, [RETRY_HOURS])
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
    try {
      const target = await loadTarget(database, claim.channelId)
      const notification = await loadNotification(database, claim.id)
      // Removed with its channel or organization.
      if (target === null || notification === null) return
      // All accounts that it is about were removed.
      if (notification.accountCount === 0 && ABOUT_ACCOUNTS.includes(notification.kind))
        return void (await database.query(drop, [claim.id, claim.attempts]))
      const response = await send(notification, target).catch((error: Error) => {
        log.error({ fault: error.name, kind: notification.kind }, 'a notification could not be written')
        return notSent('the message could not be written')
      })
      notificationResponded.publish({ format: target.format, outcome: outcomeOf(response) })
      if (response.status === GONE && target.format !== 'email') await pauseGone(database, target.id)
      await storeResult(database, claim, response)
    } catch (error) {
      // An operator can add the key, or store the target again. If the database is down, the lease ends.
      if (error instanceof UnreadableSecret)
        return await storeResult(database, claim, notSent(UNREADABLE_SECRET)).catch(() => undefined)
      log.warn({ fault: (error as Error).name }, 'the result of a notification was not stored')
    }
  }

  return async () => {
    const ended = repetition.stop().then(() => Promise.all(inFlight.values()))
    await Promise.race([ended, sleep(STOP_MAX_MS, undefined, { ref: false })])
  }
}

/** Longer than an attempt: a request takes up to 10 s, a mail up to 30 s. */
const LEASE_SECONDS = 60
/** After this many hours of failed attempts, a message has failed permanently. One that has been due for as long is not sent. */
const RETRY_HOURS = 24
/** Of one process, and of channels about all organizations together. A quarter of its requests: a receiver may hang for 10 s. */
const PER_ORGANIZATION_MAX = 4

type Claim = {
  id: bigint
  channelId: bigint
  attempts: number
}

/** A retry follows within 2 hours. */
const IS_DUE = `is_due(due_at, interval '2 hours')`
const IS_FREE = `is_due(leased_until, interval '${LEASE_SECONDS} seconds')`

/**
 * The next message of each channel to which nobody sends. Channels whose receivers accept messages come first, then those whose messages
 * have waited for longest. The receivers of an organization may all hang.
 *
 * $1 channels int; $2 ids of channels that this process sends to bigint[]; $3 channels of one organization int; $4 lease seconds int
 */
const claimDue = statement('claim-due-notifications')`
    with due as materialized (
      select notification_channel_id as id, min(due_at) as due_at, max(attempts) > 0 as is_failing,
             (array_agg(id order by due_at, id) filter (where ${IS_DUE}))[1] as next_id
        from notification where sent_at is null and failed_at is null
       group by notification_channel_id having bool_or(${IS_DUE}) and bool_and(${IS_FREE})),
    busy as materialized (
      select organization_id, count(*) as channels from notification_channel where id = any ($2) group by organization_id),
    ranked as materialized (
      select due.*, coalesce(busy.channels, 0)
             + row_number() over (partition by c.organization_id order by due.is_failing, due.due_at, c.id) as position
        from due
       cross join lateral (
         select id, organization_id from notification_channel
          where id = due.id and status = 'active' and id <> all ($2) offset 0) c
        left join busy on busy.organization_id is not distinct from c.organization_id),
    next as materialized (
      -- Another instance may have claimed a message meanwhile. Then it is locked, or leased.
      select id from notification
       where id = any (array(select next_id from ranked where position <= $3 order by is_failing, due_at, id limit $1))
         and sent_at is null and failed_at is null and ${IS_DUE} and ${IS_FREE}
       order by id
         for update skip locked)
    update notification
       set attempts = attempts + 1, first_attempt_at = coalesce(first_attempt_at, now()),
           leased_until = now() + $4 * interval '1 second'
     where id = any (array(select id from next))
    returning id, notification_channel_id as "channelId", attempts`

function claimNotifications(database: Queryable, max: number, busyChannels: bigint[]): Promise<Claim[]> {
  return database.query(claimDue, [max, busyChannels, PER_ORGANIZATION_MAX, LEASE_SECONDS])
}

/** Messages that a paused channel did not receive in time. $1 hours int */
const expire = statement('expire-notifications')`
    update notification set failed_at = now(), answer = coalesce(answer, 'expired')
     where sent_at is null and failed_at is null and ${IS_FREE} and due_at < now() - $1 * interval '1 hour'`

// The number of the attempt fences a process whose lease has ended: another one may have begun the next attempt.

/** $1 notification id bigint; $2 attempts int; $3 response status int or null */
const complete = statement('complete-notification')`
    update notification set sent_at = now(), status = $3, answer = '', leased_until = '-infinity'
     where id = $1 and attempts = $2 and sent_at is null and failed_at is null`

/** $1 notification id bigint; $2 attempts int; $3 response status int or null; $4 reason text; $5 delay ms int; $6 hours int */
const postpone = statement('postpone-notification')`
    update notification
       set status = $3, answer = $4, leased_until = '-infinity', due_at = now() + $5 * interval '1 millisecond',
           failed_at = case when first_attempt_at < now() - $6 * interval '1 hour' then now() end
     where id = $1 and attempts = $2 and sent_at is null and failed_at is null`

/** $1 notification id bigint; $2 attempts int */
const drop = statement('drop-notification')`
    delete from notification where id = $1 and attempts = $2 and sent_at is null`

async function storeResult(
  database: Queryable,
  { id, attempts }: Claim,
  response: EndpointResponse,
): Promise<void> {
  const { status, reason } = response
  if (isAccepted(response)) await database.query(complete, [id, attempts, status])
  else {
    const delayMs = retryDelayMs(attempts, response)
    await database.query(postpone, [id, attempts, status, toStorableText(reason), delayMs, RETRY_HOURS])
  }
}
