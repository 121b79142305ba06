/** Notification channels: where messages about accounts are sent, and their health, for `doctor` and metrics. See docs/planner.md. */
import type { Config } from '../../config/config.ts'
import type { SecretKeys } from '../../config/secret-keys.ts'
import { printableUrl } from '../../endpoints/address.ts'
import { responseLine } from '../../endpoints/endpoint-health.ts'
import { type Finding, finding, requireVisible } from '../../errors.ts'
import { age } from '../../http/times.ts'
import type { OrganizationId } from '../../ids.ts'
import { recordActivity } from '../../operators/activity.ts'
import { ALL_ORGANIZATIONS, type OrganizationIds, SERVICE } from '../../operators/actor.ts'
import { type Queryable, type Row, statement, type Transactions } from '../../postgres/statement.ts'
import type { Language } from '../languages.ts'

/** slack: the webhook of Slack, Mattermost, Google Chat and others; webhook: Standard Webhooks; email: by SMTP_URL. */
export const CHANNEL_FORMATS = ['slack', 'webhook', 'email'] as const
export type ChannelFormat = (typeof CHANNEL_FORMATS)[number]

export type ChannelSettings = {
  name: string
  /** a URL, or the address of a mailbox */
  target: string
  language: Language
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

/**
 * A channel about all organizations belongs to operators of all organizations.
 *
 * $1 organization ids bigint[], null: all; $2 channel id bigint, null: all
 */
const selectChannels = statement('list-notification-channels')`
    select c.id, c.organization_id as "organizationId", o.name as "organizationName", c.name, c.format, c.target, c.language,
           c.status, c.allow_private_network as "allowPrivateNetwork", iso(c.created_at) as "createdAt",
           counts.pending, counts.failed, last.response as "lastResponse"
      from notification_channel c
      left join lateral (select name from organization where id = c.organization_id offset 0) o on true
     cross join lateral (
       select count(*) filter (where n.sent_at is null and n.failed_at is null)::int as pending,
              count(*) filter (where n.failed_at is not null and n.kind <> 'test')::int as failed
         from notification n where n.notification_channel_id = c.id) counts
      left join lateral (
        select jsonb_build_object(
                 'at', iso(coalesce(n.sent_at, n.failed_at, n.first_attempt_at)),
                 'wasAccepted', n.sent_at is not null, 'status', n.status, 'reason', coalesce(n.answer, '')) as response
          from notification n
         where n.notification_channel_id = c.id and n.answer is not null and n.attempts > 0
         order by n.id desc limit 1) last on true
     where visible(c.organization_id, $1) and ($2::bigint is null or c.id = $2)
     order by c.id`

type ChannelRow = ChannelSummary & Row

export async function listChannels(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<ChannelSummary[]> {
  const channels = await database.query<ChannelRow>(selectChannels, [organizationIds, null])
  return channels.map((channel) => printable(database.secretKeys, channel))
}

export async function findChannel(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<ChannelSummary> {
  const [channel] = await database.query<ChannelRow>(selectChannels, [organizationIds, id])
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
function printableTarget(format: ChannelFormat, target: string): string {
  if (format === 'email') return target
  if (format === 'webhook') return printableUrl(target)
  return originOf(target)
}

const originOf = (url: string) => (URL.canParse(url) ? `${new URL(url).origin}/…` : '…')

/** For the activity log, which is not encrypted: the target without paths and mailbox names. */
export const recordedTarget = (format: ChannelFormat, target: string): string =>
  format === 'email' ? target.replace(/^.*@/s, '…@') : originOf(target)

/** A pass begins every 15 s, and takes seconds for 30,000 accounts. */
const WATCH_LATE_MINUTES = 5

export async function examineChannels(
  database: Queryable,
  { smtpUrl, heartbeatUrl }: Pick<Config, 'smtpUrl' | 'heartbeatUrl'>,
): Promise<Finding[]> {
  const channels = await listChannels(database, ALL_ORGANIZATIONS)
  const active = channels.filter(({ status }) => status === 'active')
  const findings = channels.map(examineChannel)
  if (channels.length === 0)
    findings.push(
      finding.ok(
        'notifications',
        'nobody is notified when an account breaks; run oa-audience notifications add',
      ),
    )
  const mailboxes = active.filter(({ format }) => format === 'email').length
  if (smtpUrl === null && mailboxes > 0)
    findings.push(
      finding.error(
        'SMTP_URL',
        `unset, so ${mailboxes} active notification channels of the format email receive nothing; set it to your mail server`,
      ),
    )
  findings.push(...(await examineWatch(database, active.length > 0)))
  if (heartbeatUrl === null)
    findings.push(
      finding.ok('HEARTBEAT_URL', 'unset, so no watchdog notices when this service cannot notify anybody'),
    )
  return findings
}

/** $1 minutes int; $2 boolean: also if no pass was ever completed */
const selectWatchAge = statement('select-notification-watch-age')`
    select case when completed_at > '-infinity' then extract(epoch from now() - completed_at)::float8 end as seconds
      from notification_watch
     where completed_at < now() - $1 * interval '1 minute' and ($2 or completed_at > '-infinity')`

async function examineWatch(database: Queryable, isWatched: boolean): Promise<Finding[]> {
  const values = [WATCH_LATE_MINUTES, isWatched]
  const [late] = await database.query<{ seconds: number | null }>(selectWatchAge, values)
  if (late === undefined) return []
  const since = late.seconds === null ? 'were never compared' : `were last compared ${age(late.seconds)} ago`
  const message = `the statuses of accounts ${since}, so nobody is notified when an account breaks, and the console shows old ones; start the service, or read its log for "a pass over the statuses of accounts failed"`
  return [finding.warning('notifications', message)]
}

function examineChannel(channel: ChannelSummary): Finding {
  const { id, status, pending, failed, lastResponse } = channel
  const check = `notifications ${id}`
  const name = `${channel.name === '' ? 'no name' : channel.name} (${channel.format})`
  if (status !== 'active') {
    const gone = lastResponse?.status === 410 ? ' after a response with 410' : ''
    const message = `${name}: ${status}${gone}, so it receives nothing; run oa-audience notifications resume ${id}, or remove it`
    return finding.warning(check, message)
  }
  if (lastResponse !== null && !lastResponse.wasAccepted) {
    const response = responseLine(lastResponse.status, lastResponse.reason)
    const message = `${name}: fails with "${response}"; messages waiting: ${pending}, failed: ${failed}; fix the target, then run oa-audience notifications test ${id}`
    return finding.warning(check, message)
  }
  return finding.ok(check, `${name}: ${lastResponse === null ? 'nothing was sent yet' : 'accepts messages'}`)
}

const pauseActive = statement('pause-gone-notification-channel')`
    update notification_channel set status = 'paused' where id = $1 and status = 'active'
    returning organization_id as "organizationId"`

/** The receiver has responded with 410. */
export function pauseGone(database: Transactions, id: bigint): Promise<void> {
  return database.transaction(async (transaction) => {
    const [paused] = await transaction.query<{ organizationId: OrganizationId | null }>(pauseActive, [id])
    if (paused === undefined) return
    await recordActivity(transaction, SERVICE, {
      action: 'notifications.paused',
      object: { kind: 'notification_channel', id },
      organizationId: paused.organizationId,
      changes: { status: ['active', 'paused'], response: 410 },
    })
  })
}
