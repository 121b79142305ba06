/** The messages of a channel, for operators. A test is sent apart from the queue, so it also works while the channel is paused. */
import { isAccepted } from '../../endpoints/post.ts'
import { TestLimit } from '../../endpoints/test-delivery.ts'
import { NotVisible } from '../../errors.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import { toStorableText } from '../../postgres/storable.ts'
import { loadNotification, loadTarget, type NotificationKind } from './content.ts'
import type { NotificationSender } from './send.ts'
import { nameOf, plainText } from './text.ts'

const NAMES_MAX = 5

export type NotificationSummary = {
  id: bigint
  kind: NotificationKind
  reason: string | null
  accounts: number
  accountNames: string[]
  createdAt: string
  dueAt: string
  sentAt: string | null
  failedAt: string | null
  attempts: number
  /** of the last response */
  status: number | null
  /** Null: no attempt has ended. Empty if there was a response, otherwise why there was none. */
  answer: string | null
  text: string
}

/** $1 channel id bigint; $2 before this id bigint; $3 rows int */
const selectHistory = statement('list-notifications')`
    select id, attempts, status, answer, iso(created_at) as "createdAt", iso(due_at) as "dueAt", iso(sent_at) as "sentAt",
           iso(failed_at) as "failedAt"
      from notification
     where notification_channel_id = $1 and id < $2
     order by id desc
     limit $3`

type HistoryRow = Row & Omit<NotificationSummary, 'kind' | 'reason' | 'accounts' | 'accountNames' | 'text'>

export async function listNotifications(
  database: Queryable,
  channelId: bigint,
  { beforeId, limit }: { beforeId: bigint; limit: number },
): Promise<NotificationSummary[]> {
  const rows = await database.query<HistoryRow>(selectHistory, [channelId, beforeId, limit])
  const messages: NotificationSummary[] = []
  for (const row of rows) {
    const notification = await loadNotification(database, row.id)
    if (notification === null) continue
    const { kind, reason, accountCount, accounts } = notification
    const accountNames = accounts.slice(0, NAMES_MAX).map((account) => nameOf(account))
    const text = plainText(notification)
    messages.push({ ...row, kind, reason, accounts: accountCount, accountNames, text })
  }
  return messages
}

export interface TestResult {
  wasAccepted: boolean
  /** null: there was no response */
  status: number | null
  /** why there was no response, or a mail server refused the message. Never contains text of the receiver. */
  reason: string
  durationMs: number
  text: string
}

/** A process that is killed during the test leaves this result. $1 channel id bigint */
const insertTest = statement('insert-notification-test')`
    insert into notification (notification_channel_id, kind, attempts, first_attempt_at, failed_at, answer)
    select id, 'test', 1, now(), now(), 'the test was interrupted' from notification_channel where id = $1
    returning id`

/** $1 notification id bigint; $2 accepted boolean; $3 response status int or null; $4 reason text */
const storeResult = statement('store-notification-test')`
    update notification
       set sent_at = case when $2 then now() end, failed_at = case when $2 then null else now() end, status = $3, answer = $4
     where id = $1`

export class ChannelTester {
  readonly #sender: NotificationSender
  readonly #limit = new TestLimit('channel')

  constructor(sender: NotificationSender) {
    this.#sender = sender
  }

  /** Throws NotVisible if the channel was removed, and `rate_limited` or `busy` if too many tests were made or are being made. */
  test(database: Queryable, channelId: bigint): Promise<TestResult> {
    return this.#limit.run(channelId, () => this.#send(database, channelId))
  }

  async #send(database: Queryable, channelId: bigint): Promise<TestResult> {
    const [stored] = await database.query<{ id: bigint }>(insertTest, [channelId])
    const target = stored && (await loadTarget(database, channelId))
    const notification = stored && (await loadNotification(database, stored.id))
    if (!target || !notification) throw new NotVisible('channel', channelId)
    const startedAtMs = performance.now()
    const response = await this.#sender(notification, target)
    const durationMs = Math.ceil(performance.now() - startedAtMs)
    const { status, reason } = response
    const wasAccepted = isAccepted(response)
    await database.query(storeResult, [notification.id, wasAccepted, status, toStorableText(reason)])
    return { wasAccepted, status, reason, durationMs, text: plainText(notification) }
  }
}
