/**
 * An outage of LINE is one incident: as long as LINE responds to no check of any account, channels receive one message about it and
 * none about single accounts.
 */
import { type Queryable, type Row, statement } from '../../postgres/statement.ts'
import type { Sighting } from './transitions.ts'

/** Fewer accounts may have a fault of their own. */
export const FAULTS_MIN = 3

export interface Checks {
  faults: number
  succeeded: number
}

export interface PlatformState {
  /** when a pass first saw the outage; null: the last pass did not see it */
  downSince: number | null
  isAnnounced: boolean
}

export interface PlatformStep {
  state: PlatformState
  event: 'down' | 'up' | null
}

/** Each change counts once two passes in a row saw it. Without any success, an announced outage lasts. */
export function stepPlatform(state: PlatformState, { faults, succeeded }: Checks, now: number): PlatformStep {
  const { downSince, isAnnounced } = state
  const isDown = succeeded === 0 && faults >= (isAnnounced ? 1 : FAULTS_MIN)
  if (isDown) {
    const event = downSince !== null && !isAnnounced ? 'down' : null
    return { state: { downSince: downSince ?? now, isAnnounced: isAnnounced || event === 'down' }, event }
  }
  const event = downSince === null && isAnnounced ? 'up' : null
  return { state: { downSince: null, isAnnounced: isAnnounced && event === null }, event }
}

export const isDown = ({ downSince, isAnnounced }: PlatformState): boolean =>
  downSince !== null || isAnnounced

/**
 * Whether the only thing known about the account is that LINE did not respond to it during an outage. After the outage, this is so
 * until the account is checked again.
 *
 * @param upAt when the last outage ended; null: there was none in a day
 */
export function isUnclear(
  { problem, checkedAt }: Sighting,
  state: PlatformState,
  upAt: number | null,
): boolean {
  if (problem?.reason !== 'platform_unreachable') return false
  return isDown(state) || (upAt !== null && checkedAt !== null && checkedAt < upAt)
}

/** Checks of the last 15 minutes. An account with a fault is checked every ten minutes. One row per account is read. */
const countChecks = statement('count-recent-checks')`
    select count(*) filter (where fault is not null)::int as faults, count(*) filter (where fault is null)::int as succeeded
      from account_check where checked_at > now() - interval '15 minutes'`

export async function readChecks(database: Queryable): Promise<Checks> {
  const [checks] = await database.query<Checks & Row>(countChecks)
  return checks ?? { faults: 0, succeeded: 0 }
}

/** A delivery of LINE within 15 minutes. It proves that LINE works, and that only the way to LINE does not. */
const selectIsDelivering = statement('platform-delivers')`
    select coalesce(max(last_at) > now() - interval '15 minutes', false) as "isDelivering"
      from delivery_hour where hour >= date_trunc('hour', now() - interval '15 minutes') and source = 'line'`

export async function isDelivering(database: Queryable): Promise<boolean> {
  const [row] = await database.query<{ isDelivering: boolean }>(selectIsDelivering)
  return row?.isDelivering === true
}
