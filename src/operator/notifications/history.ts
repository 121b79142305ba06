/** The messages of a channel, for operators. */
import { INT64_MAX } from '../../http/path-id.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { OrganizationIds } from '../actor.ts'
import { findChannel } from './channels.ts'
import { loadNotifications, type Notification, type NotificationKind } from './content.ts'
import { nameOf, plainText } from './text.ts'

const NAMES_MAX = 5
/** A message about 30,000 accounts takes up to 400 ms, and a statement may take 5 s. */
const MESSAGES_PER_STATEMENT = 5

export type NotificationSummary = {
  id: bigint
  kind: NotificationKind
  /** null: the kind has none */
  reason: string | null
  /** accounts that the message is about */
  accounts: number
  accountNames: string[]
  createdAt: string
  dueAt: string
  sentAt: string | null
  failedAt: string | null
  attempts: number
  /** of the last response; null: there was none */
  status: number | null
  /** Null: no attempt has ended. Empty if there was a response, otherwise why there was none. */
  answer: string | null
  /** of the message as it was sent, or would be sent now */
  text: string
}

/** $1 channel id bigint; $2 before this id bigint; $3 rows int */
const selectHistory = statement('list-notifications')`
    select id, attempts, status, answer,
           to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
           to_char(due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt",
           to_char(sent_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "sentAt",
           to_char(failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "failedAt"
      from notification
     where notification_channel_id = $1 and id < $2
     order by id desc
     limit $3`

type HistoryRow = Row & Omit<NotificationSummary, 'kind' | 'reason' | 'accounts' | 'accountNames' | 'text'>

/** Newest first. Throws NotVisible. */
export async function listNotifications(
  database: Queryable,
  organizationIds: OrganizationIds,
  channelId: bigint,
  { beforeId, limit }: { beforeId: bigint | null; limit: number },
): Promise<NotificationSummary[]> {
  await findChannel(database, organizationIds, channelId)
  const rows = await database.query<HistoryRow>(selectHistory, [channelId, beforeId ?? INT64_MAX, limit])
  const ids = rows.map(({ id }) => id)
  const loaded: Notification[] = []
  for (let at = 0; at < ids.length; at += MESSAGES_PER_STATEMENT)
    loaded.push(...(await loadNotifications(database, ids.slice(at, at + MESSAGES_PER_STATEMENT))))
  const byId = new Map(loaded.map((notification) => [notification.id, notification]))
  return rows.flatMap((row) => {
    const notification = byId.get(row.id)
    return notification === undefined ? [] : [{ ...row, ...described(notification) }]
  })
}

function described(notification: Notification) {
  const { kind, reason, accounts, accountCount } = notification
  return {
    ...{ kind, reason, accounts: accountCount },
    accountNames: accounts.slice(0, NAMES_MAX).map(nameOf),
    text: plainText(notification),
  }
}
