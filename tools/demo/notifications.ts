/**
 * Notification channels of the demo and what they sent in two weeks. Nothing leaves the machine: the simulated platform plays the chat,
 * and the mailbox is paused.
 */
import type { OrganizationId } from '../../src/ids.ts'
import { type Queryable, statement, type Transactions } from '../../src/postgres/statement.ts'
import type { AccountStatus, Problem } from '../../src/watch/account-status.ts'
import type { NotificationKind } from '../../src/watch/notifications/content.ts'

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
}

const TOKEN: Problem = { reason: 'token_refused', status: 'broken', facts: { check: null } }
const UNAPPLIED: Problem = { reason: 'events_unapplied', status: 'degraded', facts: { count: 7 } }

const EXPIRES: Problem = {
  reason: 'token_expires',
  status: 'degraded',
  facts: { expiresAt: new Date(Date.now() + 72 * HOUR_MS).toISOString(), isExpired: false },
}

/** They fit the fleet and its activity log: see fleet.ts and story.ts. What the fleet shows was announced already. */
const ON_CALL: Message[] = [
  { hoursAgo: 310, kind: 'test' },
  {
    hoursAgo: 172,
    kind: 'problem',
    account: 'Hotel Aurora',
    before: 'ok',
    after: 'broken',
    problem: { reason: 'suspended', status: 'broken', facts: {} },
    reason: 'suspended',
    attempts: 2,
  },
  {
    hoursAgo: 155,
    kind: 'recovery',
    account: 'Hotel Aurora',
    before: 'broken',
    after: 'ok',
    problem: null,
    reason: 'suspended',
    sinceHours: 17,
  },
  {
    hoursAgo: 118,
    kind: 'problem',
    account: 'Momo Books',
    before: 'ok',
    after: 'broken',
    problem: TOKEN,
    reason: 'token_refused',
  },
  {
    hoursAgo: 22,
    kind: 'reminder',
    account: 'Momo Books',
    before: 'broken',
    after: 'broken',
    problem: TOKEN,
    reason: 'token_refused',
    sinceHours: 96,
  },
  {
    hoursAgo: 21,
    kind: 'problem',
    account: 'Lotus Spa',
    before: 'ok',
    after: 'broken',
    problem: { reason: 'no_channel_secret', status: 'broken', facts: {} },
    reason: 'no_channel_secret',
  },
  {
    hoursAgo: 20,
    kind: 'problem',
    account: 'Tokyo Ramen',
    before: 'ok',
    after: 'degraded',
    problem: EXPIRES,
    reason: 'token_expires',
  },
  {
    hoursAgo: 9,
    kind: 'problem',
    account: 'Siam Dental',
    before: 'ok',
    after: 'broken',
    problem: { reason: 'webhook_inactive', status: 'broken', facts: {} },
    reason: 'webhook_inactive',
  },
  {
    hoursAgo: 2,
    kind: 'problem',
    account: 'Green Gym',
    before: 'ok',
    after: 'degraded',
    problem: UNAPPLIED,
    reason: 'events_unapplied',
  },
]

const MAILBOX: Message[] = [
  { hoursAgo: 250, kind: 'test', attempts: 3, failed: { status: 550, answer: 'No such user here' } },
  { hoursAgo: 249, kind: 'test' },
]

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
    const chat = [null, 'On call', 'slack', chatUrl, 'active', true]
    const mailbox = [organizationId, 'Owners', 'email', 'owners@demo-fleet.example', 'paused']
    await addHistory(transaction, ids, chat, ON_CALL)
    await addHistory(transaction, ids, [...mailbox, false], MAILBOX)
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
    const { hoursAgo, kind, reason = null, facts = {}, problem = null, failed, attempts = 1 } = message
    // Some minutes earlier, so that its response was in the same full hour.
    const createdMs = Date.now() - (hoursAgo + 0.1) * HOUR_MS
    const { status, answer } = failed ?? { status: 200, answer: '' }
    const [row] = await transaction.query<{ id: bigint }>(insertMessage, [
      added?.id,
      kind,
      reason,
      JSON.stringify(facts),
      new Date(createdMs),
      attempts,
      failed !== undefined,
      status,
      answer,
    ])
    const since = new Date(createdMs - (message.sinceHours ?? 0) * HOUR_MS)
    if (message.account !== undefined)
      await transaction.query(insertAccount, [
        row?.id,
        accounts.get(message.account),
        message.before,
        message.after,
        problem === null ? null : JSON.stringify(problem),
        since,
        messages.findLast(({ account }) => account === message.account) === message && problem !== null,
      ])
  }
}

/** $1 target text */
const moveChat = statement('demo-move-chat')`
    update notification_channel set target = $1 where name = 'On call' and format = 'slack' returning id`

/** $1 organization id bigint */
const selectAccounts = statement('demo-select-notified-accounts')`
    select id, name from official_account where organization_id = $1`

/** $1 organization id bigint or null, $2 name text, $3 format text, $4 target text, $5 status text, $6 private network boolean */
const insertChannel = statement('demo-insert-channel')`
    insert into notification_channel (organization_id, name, format, target, status, allow_private_network, secret, created_at)
    values ($1, $2, $3, $4, $5, $6, null, now() - interval '13 days')
    returning id`

/**
 * $1 channel id bigint, $2 kind text, $3 reason text or null, $4 facts jsonb, $5 created timestamptz, $6 attempts int,
 * $7 whether it has failed boolean, $8 status int, $9 answer text
 */
const insertMessage = statement('demo-insert-notification')`
    insert into notification (notification_channel_id, kind, reason, facts, created_at, due_at, attempts, first_attempt_at,
                              sent_at, failed_at, status, answer)
    select $1, $2, $3, $4, $5::timestamptz, $5::timestamptz, $6::int, $5::timestamptz,
           case when not $7 then $5::timestamptz + $6::int * interval '20 seconds' end,
           case when $7 then $5::timestamptz + interval '1 hour' end, $8, $9
    returning id`

/**
 * $1 notification id bigint, $2 account id bigint, $3 before text, $4 after text, $5 problem jsonb or null, $6 since timestamptz,
 * $7 whether it is what the channel was sent last boolean
 */
const insertAccount = statement('demo-insert-notification-account')`
    insert into notification_account (notification_id, channel_oa_id, before, after, problem, since, is_current)
    values ($1, $2, $3, $4, $5, $6, $7)`
