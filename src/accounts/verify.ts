/** Whether an official account is set up so that the platform and this service understand each other. */
import Type, { type Static } from 'typebox'
import { AppError } from '../errors.ts'
import { StorableText } from '../http/validate.ts'
import type { Queryable } from '../postgres/database.ts'
import type { Account } from './account.ts'
import type { BotInfo, LineApi, PlatformFault } from './line-api.ts'

/** What the caller believes about the account; compared with what the platform says. */
export const ClaimsSchema = Type.Object(
  {
    testWebhook: Type.Optional(Type.Boolean()),
    basicId: Type.Optional(StorableText({ maxLength: 128 })),
    botUserId: Type.Optional(StorableText({ maxLength: 128 })),
  },
  { additionalProperties: false },
)

export type Claims = Static<typeof ClaimsSchema>

export interface Check {
  name: 'access_token' | 'identity'
  ok: boolean
  message: string
}

export interface Verification {
  verified: boolean
  account: BotInfo | null
  accountType: 'verified_or_premium' | 'unverified' | 'unknown'
  webhook: null
  checks: Check[]
  checkedAt: string
}

/**
 * Asks the platform and stores the outcome. What the platform refuses is an outcome; a platform that is away,
 * slow or limiting is `platform_unavailable`, and nothing is stored.
 */
export async function verifyAccount(
  database: Queryable,
  lineApi: LineApi,
  account: Account,
  claims: Claims,
  now: Date,
): Promise<Verification> {
  const outcome = await askPlatform(lineApi, account, claims)
  const verification: Verification = {
    verified: outcome.checks.every(({ ok }) => ok),
    account: outcome.info,
    accountType: 'unknown',
    webhook: null,
    checks: outcome.checks,
    checkedAt: now.toISOString(),
  }
  await storeVerification(database, account, verification)
  return verification
}

async function askPlatform(
  lineApi: LineApi,
  account: Account,
  claims: Claims,
): Promise<{ info: BotInfo | null; checks: Check[] }> {
  const token = await lineApi.accessToken(account)
  if (token === null) {
    return {
      info: null,
      checks: [failed('access_token', 'The account has neither an access token nor channel id and secret')],
    }
  }
  if (!token.ok)
    return { info: null, checks: [refusal(token.fault, 'The platform refuses the channel id and secret')] }
  const info = await lineApi.botInfo(token.value)
  if (!info.ok)
    return { info: null, checks: [refusal(info.fault, 'The platform refuses the channel access token')] }
  const accepted: Check = { name: 'access_token', ok: true, message: 'The platform accepts the access token' }
  return { info: info.value, checks: [accepted, identityCheck(account, claims, info.value)] }
}

function refusal(fault: PlatformFault, message: string): Check {
  if (fault.type === 'unavailable') {
    throw new AppError('platform_unavailable', { retryAfterSeconds: fault.retryAfterSeconds })
  }
  if (fault.type === 'malformed_token') {
    return failed(
      'access_token',
      'The stored channel access token has characters that no token has: store it again',
    )
  }
  return failed('access_token', `${message} (status ${fault.status}): issue a new one and store it`)
}

/** The token may be a good one and still belong to another account. */
function identityCheck(account: Account, claims: Claims, info: BotInfo): Check {
  const botUserIds = [account.botUserId, claims.botUserId].filter(isGiven)
  const basicIds = [account.basicId, claims.basicId].filter(isGiven)
  if (botUserIds.some((expected) => expected !== info.userId)) {
    return failed('identity', 'The access token belongs to an account with another bot user id')
  }
  if (basicIds.some((expected) => !isSameBasicId(expected, info))) {
    return failed('identity', 'The access token belongs to an account with another basic id')
  }
  return { name: 'identity', ok: true, message: 'The access token belongs to this account' }
}

function isGiven(value: string | null | undefined): value is string {
  return value !== null && value !== undefined && value !== ''
}

/** Written with or without @, in any case; a premium id names the same account. */
function isSameBasicId(expected: string, info: BotInfo): boolean {
  const normal = (id: string) => id.replace(/^@/, '').toLowerCase()
  return [info.basicId, info.premiumId].filter(isGiven).some((id) => normal(id) === normal(expected))
}

function failed(name: Check['name'], message: string): Check {
  return { name, ok: false, message }
}

async function storeVerification(
  database: Queryable,
  account: Account,
  verification: Verification,
): Promise<void> {
  await database.query(`update official_account set verification = $2, verified_at = $3 where id = $1`, [
    account.id,
    JSON.stringify(verification),
    verification.checkedAt,
  ])
}
