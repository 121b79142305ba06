/**
 * Notification channels of the demo and what they sent in two weeks. Nothing leaves the machine: the simulated platform plays the chat,
 * and the mailbox is paused.
 */
import type { OrganizationId } from '../../src/accounts/account.ts'
import type { AccountStatus, Problem } from '../../src/operator/accounts/account-status.ts'
import type { NotificationKind } from '../../src/operator/notifications/content.ts'
import { nextMinuteOfDay } from '../../src/operator/notifications/quiet-hours.ts'
import { type Queryable, statement, type Transactions } from '../../src/postgres/statement.ts'

const TIME_ZONE = 'Asia/Tokyo'
const QUIET_HOURS = '22:00-07:00'
const QUIET_UNTIL_MINUTE = 7 * 60
const HOUR_MS = 3_600_000

interface Message {
  hoursAgo: number
  kind: NotificationKind
  /** what it says about an account; absent: it says nothing about one */
  account?: string
  before?: AccountStatus
  after?: AccountStatus
  /** null: solved */
  problem?: Problem | null
  /** hours before the message */
  sinceHours?: number
  reason?: string
  facts?: object
  attempts?: number
  /** of the last attempt, default: accepted */
  failed?: { status: number; answer: string }
  /** waits for the end of the quiet hours */
  isWaiting?: boolean
}

const TOKEN: Problem = { reason: 'token_refused', status: 'broken', facts: { check: null } }
const UNAPPLIED: Problem = { reason: 'events_unapplied', status: 'degraded', facts: { count: 7 } }

/** They fit the fleet and its activity log: see fleet.ts and story.ts. */
const ON_CALL: Message[] = [
  { hoursAgo: 310, kind: 'test' },
  {
    ...{ hoursAgo: 172, kind: 'problem', account: 'Hotel Aurora', before: 'ok', after: 'broken' },
    ...{ problem: { reason: 'suspended', status: 'broken', facts: {} }, reason: 'suspended', attempts: 2 },
  },
  {
    ...{ hoursAgo: 155, kind: 'recovery', account: 'Hotel Aurora', before: 'broken', after: 'ok' },
    ...{ problem: null, reason: 'suspended', sinceHours: 17 },
  },
  {
    ...{ hoursAgo: 118, kind: 'problem', account: 'Momo Books', before: 'ok', after: 'broken' },
    ...{ problem: TOKEN, reason: 'token_refused' },
  },
  {
    ...{ hoursAgo: 94, kind: 'reminder', account: 'Momo Books', before: 'broken', after: 'broken' },
    ...{ problem: TOKEN, reason: 'token_refused', sinceHours: 24 },
  },
  {
    ...{ hoursAgo: 9, kind: 'problem', account: 'Siam Dental', before: 'ok', after: 'broken' },
    ...{ problem: { reason: 'webhook_inactive', status: 'broken', facts: {} }, reason: 'webhook_inactive' },
  },
  {
    ...{ hoursAgo: 2, kind: 'problem', account: 'Green Gym', before: 'ok', after: 'degraded' },
    ...{ problem: UNAPPLIED, reason: 'events_unapplied', isWaiting: true },
  },
]

const MAILBOX: Message[] = [
  {
    ...{ hoursAgo: 250, kind: 'test', attempts: 3 },
    failed: { status: 550, answer: 'No such user here' },
  },
  { hoursAgo: 249, kind: 'test' },
  {
    ...{ hoursAgo: 60, kind: 'summary' },
    facts: { accounts: 9, broken: 2, degraded: 1, quiet: 1, ok: 5, problems: 3, recoveries: 1 },
  },
]

/** What the fleet shows was announced already, so the first pass of the watch adds nothing. */
const ANNOUNCED: Record<string, { status: AccountStatus; reason: string }> = {
  'Siam Dental': { status: 'broken', reason: 'webhook_inactive' },
  'Momo Books': { status: 'broken', reason: 'token_refused' },
  'Lotus Spa': { status: 'broken', reason: 'no_channel_secret' },
  'Green Gym': { status: 'degraded', reason: 'events_unapplied' },
  'Tokyo Ramen': { status: 'degraded', reason: 'token_expires' },
}

/**
 * Adds the channels once. The chat of an earlier run listened on another port.
 * @param chatUrl where the simulated platform plays a chat
 */
export async function addNotifications(
  database: Transactions,
  organizationId: OrganizationId,
  chatUrl: string,
): Promise<void> {
  await database.transaction(async (transaction) => {
    const moved = await transaction.query(moveChat, [chatUrl])
    if (moved.length > 0) return
    const accounts = await transaction.query<{ id: bigint; name: string }>(selectAccounts, [organizationId])
    const ids = new Map(accounts.map(({ id, name }) => [name, id]))
    const chat = [null, 'On call', 'slack', chatUrl, 'active', QUIET_HOURS, TIME_ZONE, false, true]
    const mailbox = [organizationId, 'Owners', 'email', 'owners@demo-fleet.example', 'paused']
    await addHistory(transaction, ids, chat, ON_CALL)
    await addHistory(transaction, ids, [...mailbox, null, TIME_ZONE, true, false], MAILBOX)
    for (const [name, { status, reason }] of Object.entries(ANNOUNCED))
      await transaction.query(insertAlert, [ids.get(name), status, reason])
  })
}

async function addHistory(
  transaction: Queryable,
  accounts: Map<string, bigint>,
  channel: unknown[],
  messages: Message[],
): Promise<void> {
  const [added] = await transaction.query<{ id: bigint }>(insertChannel, channel)
  for (const message of messages) {
    const { hoursAgo, kind, reason = null, facts = {}, problem = null, failed, isWaiting = false } = message
    const nowMs = Date.now()
    const createdMs = nowMs - hoursAgo * HOUR_MS
    const dueMs = isWaiting ? nextMinuteOfDay(TIME_ZONE, QUIET_UNTIL_MINUTE, nowMs) : createdMs
    const attempts = isWaiting ? 0 : (message.attempts ?? 1)
    const { status, answer } = failed ?? { status: kind === 'summary' ? 250 : 200, answer: '' }
    const outcome = attempts === 0 ? [null, null] : [status, answer]
    const [row] = await transaction.query<{ id: bigint }>(insertMessage, [
      ...[added?.id, kind, reason, problem?.status ?? null, JSON.stringify(facts)],
      ...[new Date(createdMs), new Date(dueMs), attempts, failed !== undefined, ...outcome],
    ])
    const since = new Date(createdMs - (message.sinceHours ?? 0) * HOUR_MS)
    if (message.account !== undefined)
      await transaction.query(insertAccount, [
        ...[row?.id, accounts.get(message.account), message.before, message.after],
        ...[problem === null ? null : JSON.stringify(problem), since],
      ])
  }
}

/** $1 target text */
const moveChat = statement('demo-move-chat')`
    update notification_channel set target = $1 where name = 'On call' and format = 'slack' returning id`

/** $1 organization id bigint */
const selectAccounts = statement('demo-select-notified-accounts')`
    select id, name from official_account where organization_id = $1`

/**
 * $1 organization id bigint or null, $2 name text, $3 format text, $4 target text, $5 status text, $6 quiet hours text or null,
 * $7 time zone text, $8 weekly summary boolean, $9 private network boolean
 */
const insertChannel = statement('demo-insert-channel')`
    insert into notification_channel (organization_id, name, format, target, status, quiet_hours, time_zone, weekly_summary,
                                      allow_private_network, secret, created_at)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, null, now() - interval '13 days')
    returning id`

/**
 * $1 channel id bigint, $2 kind text, $3 reason text or null, $4 severity text or null, $5 facts jsonb, $6 created timestamptz,
 * $7 due timestamptz, $8 attempts int, $9 whether it has failed boolean, $10 status int or null, $11 answer text or null
 */
const insertMessage = statement('demo-insert-notification')`
    insert into notification (notification_channel_id, kind, reason, severity, facts, created_at, due_at, attempts, first_attempt_at,
                              sent_at, failed_at, status, answer)
    select $1, $2, $3, $4, $5, $6::timestamptz, $7, $8::int, case when $8::int > 0 then $6::timestamptz end,
           case when $8::int > 0 and not $9 then $6::timestamptz + $8::int * interval '20 seconds' end,
           case when $9 then $6::timestamptz + interval '1 hour' end, $10, $11
    returning id`

/** $1 notification id bigint, $2 account id bigint, $3 before text, $4 after text, $5 problem jsonb or null, $6 since timestamptz */
const insertAccount = statement('demo-insert-notification-account')`
    insert into notification_account (notification_id, channel_oa_id, before, after, problem, since) values ($1, $2, $3, $4, $5, $6)`

/** $1 account id bigint, $2 status text, $3 reason text */
const insertAlert = statement('demo-insert-account-alert')`
    insert into account_alert (channel_oa_id, status, passes, since, announced_status, announced_reason, announced_at, reminded_at)
    values ($1, $2, 2, now(), $2, $3, now(), now())`
