/** Notifications as requests to chats and webhooks. email.ts has those to mailboxes. */
import { secretOrNull } from '../../config/secret.ts'
import { standardHeaders } from '../../endpoints/messages.ts'
import type { Message } from '../../endpoints/post.ts'
import { chatName, oneLine } from '../../one-line.ts'
import { toJson } from '../format.ts'
import type { Notification, NotificationTarget, NotifiedAccount } from './content.ts'
import { chatLine } from './safe-text.ts'
import { explainAccount, linkOf, nameOf, subjectOf, withNames, writeLines } from './text.ts'

/** The same in every attempt. Contains the time, because ids are used again after a restore of the database. */
export const messageId = ({ id, createdMs }: Pick<Notification, 'id' | 'createdMs'>): string =>
  `ntf_${id}_${Math.floor(createdMs)}`

/** The text that Slack, Mattermost, Google Chat and others accept. */
export function writeSlack(notification: Notification, consoleUrl: string | null): Message {
  const text = writeLines(notification, { consoleUrl, safeName: chatName, safeLine: chatLine }).join('\n')
  return {
    headers: { 'content-type': 'application/json; charset=utf-8', 'user-agent': 'oa-audience' },
    body: JSON.stringify({ text }),
  }
}

/** Returns null if the channel has no secret to sign with. */
export function writeWebhook(
  notification: Notification,
  { secret }: Pick<NotificationTarget, 'secret'>,
  consoleUrl: string | null,
  nowMs: number,
): Message | null {
  const key = secretOrNull(secret)
  if (key === null) return null
  const body = toJson({
    type: typeOf(notification),
    timestamp: new Date(notification.createdMs).toISOString(),
    data: dataOf(notification, consoleUrl),
  })
  return { headers: standardHeaders(messageId(notification), body, [key], nowMs), body }
}

function typeOf({ kind }: Notification): string {
  switch (kind) {
    case 'platform_down':
    case 'platform_up':
      return 'platform.status'
    case 'test':
      return 'notification.test'
    default:
      return 'account.status'
  }
}

function dataOf(notification: Notification, consoleUrl: string | null): object {
  const { kind, facts, accounts, accountCount } = notification
  const text = {
    message: oneLine(subjectOf(withNames(notification)), 500),
    link: linkOf(notification, consoleUrl),
  }
  switch (kind) {
    case 'platform_down':
    case 'platform_up': {
      const { since = null, until = null, cause = null, accounts: count = 0 } = facts
      const isDown = kind === 'platform_down'
      const change = isDown ? { before: 'up', after: 'down' } : { before: 'down', after: 'up' }
      const reason = isDown ? 'platform_unreachable' : null
      return { ...change, reason, ...text, cause, since, until, count }
    }
    case 'test':
      return text
    default: {
      const all = accounts.map((account) => accountData(account, notification, consoleUrl))
      const reminder = kind === 'reminder' ? { reminder: true } : {}
      const cause = { cause: facts.cause ?? null }
      return { ...all[0], ...reminder, ...cause, count: accountCount, accounts: all }
    }
  }
}

function accountData(account: NotifiedAccount, notification: Notification, consoleUrl: string | null) {
  const { id, organizationId, before, after, problem } = account
  const { message = null, fix = null } = explainAccount(account, notification) ?? {}
  return {
    accountId: id,
    name: nameOf(account),
    organizationId,
    ...{ before, after, reason: problem?.reason ?? null, message, fix },
    link: linkOf({ accounts: [account], accountCount: 1 }, consoleUrl),
  }
}
