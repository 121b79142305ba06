/** The health of notification channels, for `doctor` and metrics. */
import type { Config } from '../../config/config.ts'
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import { ALL_ORGANIZATIONS } from '../actor.ts'
import { responseLine, type Severity } from '../endpoints/endpoint-health.ts'
import { age } from '../format.ts'
import { type ChannelFormat, type ChannelSummary, listChannels } from './channels.ts'

/** A pass begins every 15 s, or every 5 times as long as the last one took: seconds for 30,000 accounts. */
const WATCH_LATE_MINUTES = 5

export type ChannelFinding = { check: string; severity: Severity; message: string }

export async function examineChannels(
  database: Queryable,
  { smtpUrl, heartbeatUrl }: Pick<Config, 'smtpUrl' | 'heartbeatUrl'>,
): Promise<ChannelFinding[]> {
  const channels = await listChannels(database, ALL_ORGANIZATIONS)
  const findings = channels.map((channel) => ({ check: `notifications ${channel.id}`, ...stateOf(channel) }))
  if (channels.length === 0) {
    const message = 'nobody is notified when an account breaks; run oa-audience notifications add'
    findings.push({ check: 'notifications', severity: 'ok', message })
  }
  const mailboxes = channels.filter(({ format, status }) => format === 'email' && status === 'active').length
  if (smtpUrl === null && mailboxes > 0) {
    const message = `unset, so ${mailboxes} active notification channels of the format email receive nothing; set it to your mail server`
    findings.push({ check: 'SMTP_URL', severity: 'error', message })
  }
  const isWatched = channels.some(({ status }) => status === 'active')
  findings.push(...(await examineWatch(database, isWatched)))
  if (heartbeatUrl === null) {
    const message = 'unset, so no watchdog notices when this service cannot notify anybody'
    findings.push({ check: 'HEARTBEAT_URL', severity: 'ok', message })
  }
  return findings
}

/** $1 minutes int; $2 boolean: also if no pass was ever completed */
const selectWatchAge = statement('select-notification-watch-age')`
    select case when completed_at > '-infinity' then extract(epoch from now() - completed_at)::float8 end as seconds
      from notification_watch
     where completed_at < now() - $1 * interval '1 minute' and ($2 or completed_at > '-infinity')`

/** Channels that accept messages say nothing about whether any are made. */
async function examineWatch(database: Queryable, isWatched: boolean): Promise<ChannelFinding[]> {
  const [late] = await database.query<{ seconds: number | null }>(selectWatchAge, [
    WATCH_LATE_MINUTES,
    isWatched,
  ])
  if (late === undefined) return []
  const since = late.seconds === null ? 'were never compared' : `were last compared ${age(late.seconds)} ago`
  const message = `the statuses of accounts ${since}, so nobody is notified when an account breaks, and the console shows old ones; start the service, or read its log for "a pass over the statuses of accounts failed"`
  return [{ check: 'notifications', severity: 'warning', message }]
}

function stateOf(channel: ChannelSummary): Omit<ChannelFinding, 'check'> {
  const { id, status, pending, failed, lastResponse } = channel
  const name = `${channel.name === '' ? 'no name' : channel.name} (${channel.format})`
  if (status !== 'active') {
    const gone = lastResponse?.status === 410 ? ' after a response with 410' : ''
    const message = `${name}: ${status}${gone}, so it receives nothing; run oa-audience notifications resume ${id}, or remove it`
    return { severity: 'warning', message }
  }
  if (lastResponse !== null && !lastResponse.wasAccepted) {
    const response = responseLine(lastResponse.status, lastResponse.reason)
    const message = `${name}: fails with "${response}"; messages waiting: ${pending}, failed: ${failed}; fix the target, then run oa-audience notifications test ${id}`
    return { severity: 'warning', message }
  }
  return {
    severity: 'ok',
    message: `${name}: ${lastResponse === null ? 'nothing was sent yet' : 'accepts messages'}`,
  }
}

/** Of the last 30 days, which is the retention. */
const selectCounts = statement('count-notifications')`
    select c.format, count(*) filter (where n.sent_at is null and n.failed_at is null)::int as pending,
           count(*) filter (where n.failed_at is not null)::int as failed
      from notification n join notification_channel c on c.id = n.notification_channel_id
     where n.kind <> 'test'
     group by c.format`

export interface NotificationCounts extends Row {
  format: ChannelFormat
  pending: number
  failed: number
}

/** A format without messages is left out. */
export function countNotifications(database: Queryable): Promise<NotificationCounts[]> {
  return database.query<NotificationCounts>(selectCounts)
}
