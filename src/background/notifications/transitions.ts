/** Compares what a pass saw of an account with what was sent to channels about it. Pure. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import type { AccountStatus, Problem, Reason } from '../../operator/accounts/account-status.ts'

/** A status counts once so many passes in a row saw it. */
export const PASSES_NEEDED = 2
/** While a problem lasts, channels are reminded of it once a day. */
export const REMINDER_INTERVAL_MS = 24 * 3_600_000
/** A reminder leaves out accounts whose problem was announced within this time. */
export const REMINDER_PAUSE_MS = 3_600_000

/** Channels are notified of `broken` and `degraded`. Both other statuses are `ok` here: the account has recovered. */
export type Level = 'ok' | 'degraded' | 'broken'

export const levelOf = (status: AccountStatus): Level =>
  status === 'broken' || status === 'degraded' ? status : 'ok'

/** What a pass saw of one account. */
export interface Sighting {
  id: AccountId
  organizationId: OrganizationId
  status: AccountStatus
  /** the worst one; null: none */
  problem: Problem | null
  /** when LINE was called last, in milliseconds since 1970 */
  checkedAt: number | null
}

/** What was sent to channels. Times are milliseconds since 1970. */
export interface Announced {
  status: Exclude<Level, 'ok'>
  reason: Reason
  /** when the problem was announced first, and when channels were notified of it last */
  at: number
  remindedAt: number
}

/** A row of account_alert. */
export interface Alert {
  id: AccountId
  organizationId: OrganizationId
  status: Level
  passes: number
  since: number
  announced: Announced | null
}

/** Channels learn of this change. */
export interface Announcement {
  account: Sighting
  /** what they were sent before; null: nothing */
  before: Announced | null
  /** since when the account has its status */
  since: number
}

export interface Step {
  /** null: nothing to remember */
  alert: Alert | null
  announcement: Announcement | null
}

/** @param isCovered an active channel receives messages about the account */
export function stepAlert(stored: Alert | null, seen: Sighting, isCovered: boolean, now: number): Step {
  const { id, organizationId } = seen
  const status = levelOf(seen.status)
  // A channel that is added later is notified of what is not announced.
  const announced = isCovered ? (stored?.announced ?? null) : null
  const isSame = stored?.status === status
  const passes = isSame ? Math.min(stored.passes + 1, PASSES_NEEDED) : 1
  const since = isSame ? stored.since : now
  const alert: Alert = { id, organizationId, status, passes, since, announced }
  if (status === 'ok' && announced === null) return { alert: null, announcement: null }
  if (!isCovered || passes < PASSES_NEEDED || announced?.status === status)
    return { alert, announcement: null }
  const announcement = { account: seen, before: announced, since }
  if (status === 'ok' || seen.problem === null) return { alert: null, announcement }
  const next = { status, reason: seen.problem.reason, at: announced?.at ?? now, remindedAt: now }
  return { alert: { ...alert, announced: next }, announcement }
}

/** Whether the row must be stored again. While nothing changes, a pass writes nothing. */
export function isChanged(stored: Alert | null, alert: Alert | null): boolean {
  if (stored === null || alert === null) return stored !== alert
  return (
    stored.status !== alert.status ||
    stored.passes !== alert.passes ||
    stored.announced?.status !== alert.announced?.status ||
    stored.announced?.remindedAt !== alert.announced?.remindedAt
  )
}

/** Reminds of all accounts at the same time, so that a channel receives one reminder a day. Returns the alerts to remind of. */
export function dueReminders(alerts: Iterable<Alert>, now: number): Alert[] {
  const old = [...alerts].filter(
    ({ announced }) => announced !== null && announced.remindedAt <= now - REMINDER_PAUSE_MS,
  )
  const isDue = old.some(({ announced }) => (announced?.remindedAt ?? now) <= now - REMINDER_INTERVAL_MS)
  return isDue ? old : []
}
