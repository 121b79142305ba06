/** LINE's statistics of an account: followers per day, messages per month, and the validity of a token. */

/** Totals at the end of a day. */
export interface FollowerStatistics {
  /** Everybody who ever added the account, including those who block it now. */
  followers: number
  /** Followers whom a targeted message can reach. Null: too few. */
  reachable: number | null
  blocks: number
}

export interface MessageQuota {
  /** Messages per month. Null: the plan has no limit. */
  limit: number | null
  used: number
}

export interface TokenInfo {
  /** Null: LINE does not return it. */
  expiresInSeconds: number | null
  /** The channel that the token was issued for. Null: LINE does not return it. */
  channelId: string | null
}

type Fields = Record<string, unknown>

/** `statistics` is null if LINE has not counted the day yet, and for days before the account existed. */
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
