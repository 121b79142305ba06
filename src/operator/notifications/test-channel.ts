/**
 * Sends a test message to a channel at once, apart from the queue, so it also works while the channel is paused. The message is stored
 * with its result.
 */

import { isAccepted } from '../../endpoints/post.ts'
import { TestLimit } from '../../endpoints/test-limit.ts'
import { NotVisible } from '../../errors.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { toStorableText } from '../../postgres/storable.ts'
import type { Actor } from '../actor.ts'
import { findChannel } from './channels.ts'
import { loadNotifications, loadTarget } from './content.ts'
import { recordChannel } from './manage-channels.ts'
import type { NotificationSender } from './send.ts'
import { plainText } from './text.ts'

export interface TestResult {
  wasAccepted: boolean
  /** of HTTP or of the mail server; null: there was no response */
  status: number | null
  /** why there was no response, or a mail server refused the message. Never contains text of the receiver. */
  reason: string
  durationMs: number
  /** what was sent, as an operator reads it */
  text: string
}

/**
 * A process that is killed during the test leaves this result. The outbox sends no message that has failed.
 *
 * $1 channel id bigint
 */
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
    const [notification] = stored ? await loadNotifications(database, [stored.id]) : []
    if (!target || notification === undefined) throw new NotVisible('channel', channelId)
    const startedAtMs = performance.now()
    const response = await this.#sender.send(notification, target)
    const durationMs = Math.ceil(performance.now() - startedAtMs)
    const { status, reason } = response
    const wasAccepted = isAccepted(response)
    await database.query(storeResult, [notification.id, wasAccepted, status, toStorableText(reason)])
    return { wasAccepted, status, reason, durationMs, text: plainText(notification) }
  }
}

/** Throws NotVisible. */
export async function testChannel(
  database: Transactions,
  actor: Actor,
  id: bigint,
  tester: ChannelTester,
): Promise<TestResult> {
  const channel = await findChannel(database, actor.organizationIds, id)
  const result = await tester.test(database, id)
  await recordChannel(database, actor, channel, 'notifications.tested', {
    status: result.status,
    durationMs: result.durationMs,
  })
  return result
}
