/** Messages about an outage of LINE: one per channel when it begins, and one when it is over. */
import { type Row, statement } from '../../postgres/statement.ts'
import { insertMessages, type NewRow, readRecent } from './message-rows.ts'
import { type Seen, totalOf } from './picture.ts'
import { hourLimit } from './plan-messages.ts'
import { type Checks, findCause, type PlatformState } from './platform.ts'

export async function announceOutage(
  seen: Seen,
  { downSince }: PlatformState,
  checks: Checks,
): Promise<void> {
  const cause = await findCause(seen.transaction)
  const facts = { since: isoTime(downSince ?? seen.now), checks: checks.faults, cause }
  await announce(seen, 'platform_down', new Map(seen.channels.map(({ id }) => [id, facts])))
}

/** Only channels that were notified of the outage are notified of its end. */
export async function announceEndOfOutage(seen: Seen): Promise<void> {
  await seen.transaction.query(deleteUnattempted)
  const notified = await seen.transaction.query<NotifiedChannel>(selectNotified)
  const until = isoTime(seen.now)
  await announce(
    seen,
    'platform_up',
    new Map(notified.map(({ channelId, since }) => [channelId, { since, until }])),
  )
}

async function announce(
  { transaction, picture, channels, now }: Seen,
  kind: 'platform_down' | 'platform_up',
  facts: Map<bigint, object>,
): Promise<void> {
  const recent = (await readRecent(transaction)).filter((each) => each.kind === kind)
  const rows = channels.flatMap((channel): NewRow[] => {
    const accounts = totalOf(picture.countsOf(channel.organizationId))
    const known = facts.get(channel.id)
    if (known === undefined || accounts === 0) return []
    const times = recent.filter(({ channelId }) => channelId === channel.id).map(({ at }) => at)
    const dueAt = hourLimit(times, now)
    return [{ channelId: channel.id, kind, reason: null, facts: { ...known, accounts }, dueAt }]
  })
  await insertMessages(transaction, rows)
}

const isoTime = (ms: number): string => new Date(ms).toISOString()

/** The outage was over before its message was sent. */
const deleteUnattempted = statement('delete-waiting-outages')`
    delete from notification where kind = 'platform_down' and attempts = 0 and sent_at is null and failed_at is null`

/** The channels whose last message about LINE is an outage. */
const selectNotified = statement('select-channels-notified-of-outage')`
    select c.id as "channelId", last.since
      from notification_channel c
     cross join lateral (
       select n.kind, n.failed_at, n.facts->>'since' as since from notification n
        where n.notification_channel_id = c.id and n.kind in ('platform_down', 'platform_up')
        order by n.id desc limit 1) last
     where last.kind = 'platform_down' and last.failed_at is null`

interface NotifiedChannel extends Row {
  channelId: bigint
  since: string | null
}
