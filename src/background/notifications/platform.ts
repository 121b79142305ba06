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

/**
 * What happened in the 15 minutes: LINE delivered, and a server outside the private network responded to this service. One row per
 * endpoint is read.
 */
const selectSigns = statement('select-signs-of-outage')`
    select (select coalesce(max(last_at) > now() - interval '15 minutes', false) from delivery_hour
             where hour >= date_trunc('hour', now() - interval '15 minutes') and source = 'line') as "isDelivering",
           exists (select from endpoint_answer x join endpoint p on p.id = x.endpoint_id
                    where x.answered_at > now() - interval '15 minutes' and x.status is not null
                      and not p.allow_private_network) as "isOutsideReachable"`

/**
 * Returns `service` if the way from this service to LINE is the likely cause of an outage: LINE works, and no other server responds
 * either. The database works, because it made this pass.
 */
export async function findCause(database: Queryable): Promise<'service' | 'line'> {
  const [signs] = await database.query<{ isDelivering: boolean; isOutsideReachable: boolean }>(selectSigns)
  return signs?.isDelivering === true && !signs.isOutsideReachable ? 'service' : 'line'
}
