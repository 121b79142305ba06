/** LINE's responses about accounts and people. The functions return null for a response that LINE does not document. */
import { isObject } from '../http/body.ts'
import { type Static, Type } from '../http/typebox.ts'
import { Nullable } from '../http/validate.ts'
import { type PlatformResult, UNAVAILABLE } from './call.ts'

export type ResponseFields = Record<string, unknown>

export function read<T>(
  result: PlatformResult<unknown>,
  reader: (fields: ResponseFields) => T | null,
): PlatformResult<T> {
  if (!result.ok) return result
  const value = isObject(result.value) ? reader(result.value) : null
  return value === null ? UNAVAILABLE : { ok: true, value }
}

export const BotInfoSchema = Type.Object({
  userId: Type.String(),
  basicId: Type.String(),
  premiumId: Nullable(Type.String()),
  displayName: Type.String(),
  pictureUrl: Nullable(Type.String()),
  chatMode: Type.String(),
  markAsReadMode: Type.String(),
})

export type BotInfo = Static<typeof BotInfoSchema>

export interface Profile {
  displayName: string
  pictureUrl: string | null
  /** A language tag such as `th`. Null: the person has not set one. */
  language: string | null
}

export interface FollowersPage {
  userIds: string[]
  /** Continuation token, valid for 24 hours. Null on the last page. */
  next: string | null
}

export type WebhookEndpoint = NonNullable<ReturnType<typeof readEndpoint>>

export const WebhookTestSchema = Type.Object({
  success: Type.Boolean(),
  statusCode: Nullable(
    Type.Integer({ description: 'status of the response of the webhook URL; null or below 1: no response' }),
  ),
  reason: Type.String({
    description: 'OK, COULD_NOT_CONNECT, REQUEST_TIMEOUT, ERROR_STATUS_CODE, UNCLASSIFIED',
  }),
  detail: Type.String(),
})

export type WebhookTest = Static<typeof WebhookTestSchema>

/** Characters. Longer texts are cut. LINE's names have at most 20, its URLs a few hundred. */
const TEXT_MAX_LENGTH = 2_000

function text(fields: ResponseFields, name: string): string | null {
  const value = fields[name]
  return typeof value === 'string' ? value.slice(0, TEXT_MAX_LENGTH).toWellFormed() : null
}

export function readBotInfo(fields: ResponseFields): BotInfo | null {
  const userId = text(fields, 'userId')
  const basicId = text(fields, 'basicId')
  const displayName = text(fields, 'displayName')
  if (userId === null || basicId === null || displayName === null) return null
  return {
    userId,
    basicId,
    premiumId: text(fields, 'premiumId'),
    displayName,
    pictureUrl: text(fields, 'pictureUrl'),
    chatMode: text(fields, 'chatMode') ?? 'unknown',
    markAsReadMode: text(fields, 'markAsReadMode') ?? 'unknown',
  }
}

export function readProfile(fields: ResponseFields): Profile | null {
  const displayName = text(fields, 'displayName')
  if (displayName === null) return null
  return { displayName, pictureUrl: text(fields, 'pictureUrl'), language: text(fields, 'language') }
}

export function readFollowers(fields: ResponseFields): FollowersPage | null {
  const { userIds } = fields
  if (!Array.isArray(userIds) || !userIds.every((id) => typeof id === 'string')) return null
  const { next } = fields
  if (next === undefined) return { userIds, next: null }
  // A token that was cut would not continue the list.
  return typeof next === 'string' && next !== '' && next.length <= TEXT_MAX_LENGTH ? { userIds, next } : null
}

export function readEndpoint(fields: ResponseFields) {
  const endpoint = text(fields, 'endpoint')
  return endpoint !== null && typeof fields.active === 'boolean' ? { endpoint, active: fields.active } : null
}

export function readTest(fields: ResponseFields): WebhookTest | null {
  const reason = text(fields, 'reason')
  if (reason === null) return null
  const { success, statusCode } = fields
  return {
    success: success === true,
    statusCode: typeof statusCode === 'number' && Number.isSafeInteger(statusCode) ? statusCode : null,
    reason,
    detail: text(fields, 'detail') ?? '',
  }
}

// LINE's statistics of an account: followers per day, messages per month, and the validity of a token.

export interface MessageQuota {
  /** Messages per month. Null: the plan has no limit. */
  limit: number | null
  used: number
}

export interface TokenInfo {
  expiresInSeconds: number | null
  /** The channel that the token was issued for. Null: LINE does not return it. */
  channelId: string | null
}

/**
 * `statistics` is null if LINE has not counted the day yet, and for days before the account existed. `followers` counts everybody who
 * ever added the account, including those who block it now; `reachable` those whom a targeted message can reach, null if too few.
 */
export function readFollowerStatistics(fields: ResponseFields) {
  if (fields.status !== 'ready') return typeof fields.status === 'string' ? { statistics: null } : null
  const followers = count(fields.followers)
  const blocks = count(fields.blocks)
  if (followers === null || blocks === null) return { statistics: null }
  return { statistics: { followers, reachable: count(fields.targetedReaches), blocks } }
}

export function readQuotaLimit(fields: ResponseFields): { limit: number | null } | null {
  if (fields.type === 'none') return { limit: null }
  const limit = count(fields.value)
  return limit === null ? null : { limit }
}

export function readQuotaUsed(fields: ResponseFields): { used: number } | null {
  const used = count(fields.totalUsage)
  return used === null ? null : { used }
}

export function readTokenInfo(fields: ResponseFields): TokenInfo {
  const { client_id: channelId } = fields
  return {
    expiresInSeconds: count(fields.expires_in),
    channelId: typeof channelId === 'string' ? channelId : null,
  }
}

function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}
