/** What a replay or a resend would send, before it starts. Planner idioms: docs/planner.md. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { AppError, requireVisible } from '../errors.ts'
import { readTime } from '../http/read-time.ts'
import { refuseInput } from '../http/validate.ts'
import type { ReplayRequest } from '../jobs/replay-events.ts'
import { RATE_DEFAULT } from '../jobs/replay-pace.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { beforeEventsAt, IS_REPLAYED } from './replays.ts'
import type { EndpointFormat } from './settings.ts'

/** Counting more takes long and does not change what an operator decides. */
const COUNTED_EVENTS_MAX = 1_000_000
/** Events of one statement: some 3 ms, or 1 s if each is a random read of 0.5 ms on a cold disk. A statement may take 5 s. */
const COUNTED_PER_STATEMENT = 2_000
/**
 * Events of a flush have the time of its beginning, and its statements take 5 s at most. So all events of an earlier range are visible.
 */
const FLUSH_MAX_SECONDS = 10
/** Less than a proxy in front of the console waits. */
const COUNT_MAX_MS = 5_000

export interface AskedReplay {
  from: string
  to: string
  events?: string[] | null | undefined
  rate?: number | undefined
}

type ReplayableEndpoint = {
  id: bigint
  accountId: AccountId
  organizationId: OrganizationId
  format: EndpointFormat
  events: string[] | null
}

const selectEndpoint = statement('select-replayable-endpoint')`
    select p.id, a.id as "accountId", a.organization_id as "organizationId", p.format, p.events,
           iso(now() - $3 * interval '1 second') as until
      from endpoint p join official_account a on a.id = p.channel_oa_id
     where p.id = $1 and visible(a.organization_id, $2)`

/** Throws NotVisible, and `invalid_input`. */
export async function planReplay(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
  { from, to, events = null, rate = RATE_DEFAULT }: AskedReplay,
): Promise<{ endpoint: ReplayableEndpoint; request: ReplayRequest }> {
  const { until, ...endpoint } = await findReplayable(database, organizationIds, id)
  requireFormat(endpoint, 'line')
  if (events?.length === 0) refuseInput('events', 'is empty. Omit it to send all events.')
  const begin = isoTime('from', from)
  const end = [isoTime('to', to), until].sort()[0] as string
  if (begin >= end)
    refuseInput('from', `must be earlier than \`to\`, and ${FLUSH_MAX_SECONDS} seconds before now`)
  return { endpoint, request: { from: begin, to: end, events, rate } }
}

/** Throws NotVisible, and `invalid_input`. */
export async function findResendable(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: bigint,
): Promise<ReplayableEndpoint> {
  const { until: _, ...endpoint } = await findReplayable(database, organizationIds, id)
  requireFormat(endpoint, 'members')
  return endpoint
}

/** With the end of what can be replayed. */
async function findReplayable(database: Queryable, organizationIds: OrganizationIds, id: bigint) {
  const values = [id, organizationIds, FLUSH_MAX_SECONDS]
  const [row] = await database.query<ReplayableEndpoint & { until: string }>(selectEndpoint, values)
  return requireVisible(row, 'endpoint', id)
}

const isoTime = (field: 'from' | 'to', text: string): string => new Date(readTime(field, text)).toISOString()

function requireFormat({ id, format }: ReplayableEndpoint, wanted: EndpointFormat): void {
  if (format === wanted) return
  const message =
    format === 'line'
      ? `endpoint ${id} has the format line, which receives events. Use "oa-audience endpoints replay ${id}" instead.`
      : `endpoint ${id} has the format members, which receives the state of members. Use "oa-audience endpoints resend ${id}" instead.`
  throw new AppError('invalid_input', { message })
}

/**
 * Events of one account are almost in the order of the table, so reading them costs little more than reading the index.
 *
 * $1 account id bigint; $2 timestamptz and $3 bigint: after this event; $4 end of the range timestamptz; $5 kinds text[], null: all;
 * $6 kinds of the endpoint text[], null: all; $7 events examined int
 */
const countEvents = statement('count-replayed-events')`
    with examined as materialized (
      select id, received_at, ${IS_REPLAYED} as is_replayed
        from event
       where channel_oa_id = $1 and received_at > '-infinity' and received_at >= $2 and (received_at, id) > ($2, $3) and received_at < $4
       order by received_at, id limit $7
    )
    select counted.*, to_char(last.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "receivedAt", last.id::text as id
      from (select count(*)::int as examined, (count(*) filter (where is_replayed))::int as count from examined) counted
      left join (select received_at, id from examined order by received_at desc, id desc limit 1) last on true`

type Counted = { examined: number; count: number; receivedAt: string; id: string }

/** @returns `isMore`: there are more, because the count stops at COUNTED_EVENTS_MAX, and after COUNT_MAX_MS */
export async function countReplay(
  database: Queryable,
  { accountId, events: endpointKinds }: Pick<ReplayableEndpoint, 'accountId' | 'events'>,
  { from, to, events }: ReplayRequest,
  { maxMs = COUNT_MAX_MS, perStatement = COUNTED_PER_STATEMENT } = {},
): Promise<{ events: number; isMore: boolean }> {
  const deadline = performance.now() + maxMs
  let after = beforeEventsAt(from)
  for (let total = 0; ; ) {
    const values: unknown[] = [accountId, after.receivedAt, after.id, to, events, endpointKinds, perStatement]
    const [row] = (await database.query<Counted>(countEvents, values)) as [Counted]
    total += row.count
    if (total > COUNTED_EVENTS_MAX) return { events: COUNTED_EVENTS_MAX, isMore: true }
    if (row.examined < perStatement) return { events: total, isMore: false }
    if (performance.now() > deadline) return { events: total, isMore: true }
    after = { receivedAt: row.receivedAt, id: row.id }
  }
}

/** How long a replay takes at its rate, if the receiver is fast enough. */
export const secondsOf = (items: number, rate: number): number => Math.ceil(items / rate)
