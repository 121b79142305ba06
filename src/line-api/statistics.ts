/** LINE's own figures of an account: followers by the day, messages of the month, and the life of a token. */

/** Totals at the end of a day. */
export interface FollowerStatistics {
  /** everybody who ever added the account, whether they block it now or not */
  followers: number
  /** followers whom a targeted message can reach; null: too few to tell */
  reachable: number | null
  blocks: number
}

export interface MessageQuota {
  /** messages per month; null: the plan has no limit */
  limit: number | null
  used: number
}

export interface TokenInfo {
  /** null: LINE names no end */
  expiresInSeconds: number | null
  /** the channel that the token was issued for; null: LINE does not name it */
  channelId: string | null
}

type Fields = Record<string, unknown>

/** Null while LINE has not counted the day, and for days before the account existed. */
export function readFollowerStatistics(fields: Fields): { statistics: FollowerStatistics | null } | null {
  if (fields.status !== 'ready') return typeof fields.status === 'string' ? { statistics: null } : null
  const followers = count(fields.followers)
  const blocks = count(fields.blocks)
  if (followers === null || blocks === null) return { statistics: null }
  return { statistics: { followers, reachable: count(fields.targetedReaches), blocks } }
}

export function readQuotaLimit(fields: Fields): { limit: number | null } | null {
  if (fields.type === 'none') return { limit: null }
  const limit = count(fields.value)
  return limit === null ? null : { limit }
}

export function readQuotaUsed(fields: Fields): { used: number } | null {
  const used = count(fields.totalUsage)
  return used === null ? null : { used }
}

export function readTokenInfo(fields: Fields): TokenInfo {
  const { client_id: channelId } = fields
  return {
    expiresInSeconds: count(fields.expires_in),
    channelId: typeof channelId === 'string' ? channelId : null,
  }
}

function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}
