/** The simulated platform's figures: followers by the day, messages of the month, and the life of access tokens. */
import type { PlatformState } from './state.ts'

export interface DayStatistics {
  /** everybody who ever followed */
  followers: number
  blocks: number
}

const DAY_OFFSET_MS = 9 * 3_600_000

/** The platform's day, as 20261122. It begins at 15:00 UTC of the day before. */
export function platformDay(atMs: number): string {
  return new Date(atMs + DAY_OFFSET_MS).toISOString().slice(0, 10).replaceAll('-', '')
}

/** A day without figures of its own has those of this moment. A day that has not ended is not counted yet. */
export function followerStatistics({ people, statistics }: PlatformState, day: string | null) {
  if (day === null || !/^\d{8}$/.test(day)) return null
  if (day >= platformDay(Date.now())) return { status: 'unready' }
  const blocks = [...people.values()].filter(({ isFriend }) => !isFriend).length
  const figures = statistics.get(day) ?? { followers: people.size, blocks }
  return { status: 'ready', ...figures, targetedReaches: figures.followers - figures.blocks }
}

export function messageQuota({ settings: { quota } }: PlatformState) {
  return quota.limit === null ? { type: 'none' } : { type: 'limited', value: quota.limit }
}

export function tokenLifetime({ account, settings, tokens }: PlatformState, token: string | null) {
  if (token === null || !tokens.has(token)) return null
  return { client_id: account.channelId, expires_in: settings.tokenLifetimeSeconds, scope: 'P CM' }
}
