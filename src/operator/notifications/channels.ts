/** Notification channels: where messages about accounts are sent. */
import type { OrganizationId } from '../../accounts/account.ts'
import type { SecretKeys } from '../../config/secret-keys.ts'
import { printableUrl } from '../../endpoints/address.ts'
import { requireVisible } from '../../errors.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { OrganizationIds } from '../actor.ts'

/** slack: the webhook of Slack, Mattermost, Google Chat and others; webhook: Standard Webhooks; email: by SMTP_URL. */
export const CHANNEL_FORMATS = ['slack', 'webhook', 'email'] as const
export type ChannelFormat = (typeof CHANNEL_FORMATS)[number]

/** What an operator may change later. */
export type ChannelSettings = {
  name: string
  /** a URL, or the address of a mailbox */
  target: string
  allowPrivateNetwork: boolean
}

export type ChannelSummary = ChannelSettings & {
  id: bigint
  /** null: all */
  organizationId: OrganizationId | null
  organizationName: string | null
  format: ChannelFormat
  status: string
  createdAt: string
  /** messages that are not sent yet, and that failed permanently in the last 30 days */
  pending: number
  failed: number
  /** of the last attempt; null: there was none */
  lastResponse: { at: string; wasAccepted: boolean; status: number | null; reason: string } | null
}

/** Counted channels are small: an organization has at most CHANNELS_MAX, and retention keeps 30 days of messages. */
const COLUMNS = `c.id, c.organization_id as "organizationId", o.name as "organizationName", c.name, c.format, c.target, c.status,
           c.allow_private_network as "allowPrivateNetwork",
           to_char(c.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
           counts.pending, counts.failed, last.response as "lastResponse"`
const SOURCE = `notification_channel c
      left join lateral (select name from organization where id = c.organization_id offset 0) o on true
     cross join lateral (
       select count(*) filter (where n.sent_at is null and n.failed_at is null)::int as pending,
              count(*) filter (where n.failed_at is not null and n.kind <> 'test')::int as failed
         from notification n where n.notification_channel_id = c.id) counts
      left join lateral (
        select jsonb_build_object(
                 'at', to_char(coalesce(n.sent_at, n.failed_at, n.first_attempt_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                 'wasAccepted', n.sent_at is not null, 'status', n.status, 'reason', coalesce(n.answer, '')) as response
          from notification n
         where n.notification_channel_id = c.id and n.answer is not null and n.attempts > 0
         order by n.id desc limit 1) last on true`

/** $1 organization ids bigint[], null: all. A channel about all organizations belongs to operators of all organizations. */
const selectChannels = statement('list-notification-channels')`
    select ${COLUMNS} from ${SOURCE}
     where visible(c.organization_id, $1)
     order by c.id`

/** $1 as above; $2 channel id bigint */
const selectChannel = statement('select-notification-channel')`
    select ${COLUMNS} from ${SOURCE}
     where c.id = $2 and visible(c.organization_id, $1)`

type ChannelRow = ChannelSummary & Row

export async function listChannels(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<ChannelSummary[]> {
  return (await database.query<ChannelRow>(selectChannels, [organizationIds])).map((channel) =>
    printable(database.secretKeys, channel),
  )
}

/** Throws NotVisible. */
export async function findChannel(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<ChannelSummary> {
  const [channel] = await database.query<ChannelRow>(selectChannel, [organizationIds, id])
  return printable(database.secretKeys, requireVisible(channel, 'channel', id))
}

const printable = (keys: SecretKeys, channel: ChannelRow): ChannelSummary => ({
  ...channel,
  target: printableTarget(
    channel.format,
    keys.decryptOrNull('notification_channel.target', channel.id, channel.target) ?? '',
  ),
})

/** The path of a chat's webhook is a credential, so only its host is shown. */
export function printableTarget(format: ChannelFormat, target: string): string {
  if (format === 'email') return target
  if (format === 'webhook') return printableUrl(target)
  return originOf(target)
}

const originOf = (url: string) => (URL.canParse(url) ? `${new URL(url).origin}/…` : '…')

/** For the activity log, which is not encrypted: the target without paths and mailbox names. */
export const recordedTarget = (format: ChannelFormat, target: string): string =>
  format === 'email' ? target.replace(/^.*@/s, '…@') : originOf(target)
