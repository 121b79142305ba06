/** Brings a stored account into service at LINE: webhook URL, test, verification, followers. */
import type { Account } from '../accounts/account.ts'
import { findVerification } from '../accounts/accounts.ts'
import { identityCheck, isSameAddress, refusedCheck } from '../accounts/checks.ts'
import { verifyAccount } from '../accounts/manage-accounts.ts'
import type { Verification } from '../accounts/verification.ts'
import type { Verifier } from '../accounts/verify.ts'
import { importNextFollowers } from '../audience/import/import-followers.ts'
import { AppError, FatalError } from '../errors.ts'
import type { AccountId } from '../ids.ts'
import type { PlatformFault } from '../line-api/call.ts'
import type { LineApi } from '../line-api/client.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import { recordAccount } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Transactions } from '../postgres/statement.ts'

export interface Onboarding extends Verifier {
  database: Transactions
  actor: Actor
  /** if false, the webhook URL is neither set nor tested */
  setsWebhook: boolean
}

interface Onboarded {
  /** null: the platform did not respond */
  verification: Verification | null
  /** what the operator has to fix; null if this program found nothing */
  problem: string | null
}

const NOT_APPLIED = 'LINE has not applied the new webhook URL yet: apply the file again'

/** Skips what an earlier run has completed. */
export async function onboard(onboarding: Onboarding, account: Account): Promise<Onboarded> {
  const { database, actor, setsWebhook } = onboarding
  try {
    const webhook = setsWebhook ? await pointWebhookHere(onboarding, account) : null
    const problem = webhook?.isSet ? NOT_APPLIED : (webhook?.problem ?? null)
    const earlier = await findVerification(database, account.id)
    if (problem === null && webhook?.isActive !== false && isComplete(earlier, onboarding, account))
      return { verification: earlier, problem }
    const claims = { testWebhook: setsWebhook && problem === null }
    const verification = await verifyAccount(onboarding, actor, account, claims)
    return { verification, problem: problem ?? problemOf(verification, setsWebhook) }
  } catch (error) {
    if (!(error instanceof AppError || error instanceof FatalError)) throw error
    return { verification: null, problem: error.message }
  }
}

function isComplete(
  stored: Verification | null,
  { setsWebhook, publicUrl }: Onboarding,
  account: Account,
): boolean {
  if (!stored?.verified || !stored.webhook?.endpoint) return false
  const { endpoint, test } = stored.webhook
  return !setsWebhook || (test?.success === true && isWebhookOf(endpoint, publicUrl, account.id))
}

/** The first failed check, except for "Use webhook", which only LINE's console can change. */
function problemOf({ checks }: Verification, setsWebhook: boolean): string | null {
  const ignored = setsWebhook ? ['webhook_active'] : ['webhook_active', 'webhook_endpoint']
  return checks.find(({ name, ok }) => ok === false && !ignored.includes(name))?.message ?? null
}

/** Stores a page with its continuation token. Repeating it changes nothing. */
export function importPage(
  { database, lineApi, actor }: Pick<Onboarding, 'database' | 'lineApi' | 'actor'>,
  account: Account,
) {
  return importNextFollowers(database, lineApi, account, (transaction, changes) =>
    recordAccount(transaction, actor, 'account.followers_imported', account, { ...changes }),
  )
}

// LINE's webhook URL of an account.

const URL_MAX_LENGTH = 500

interface WebhookParts {
  database: Pick<Transactions, 'transaction'>
  lineApi: LineApi
  publicUrl: string | null
  actor: Actor
}

export function publicUrlFault(publicUrl: string | null): string | null {
  if (publicUrl === null) return 'PUBLIC_URL is not set, so no webhook URL can be set.'
  if (!/^https:/i.test(publicUrl)) return 'PUBLIC_URL must begin with https://, which LINE requires.'
  // The longest URL of any account.
  if (webhookUrl(publicUrl, 2n ** 63n - 1n).length > URL_MAX_LENGTH)
    return `PUBLIC_URL is too long: LINE accepts ${URL_MAX_LENGTH} characters.`
  return null
}

interface CurrentWebhook {
  url: string | null
  /** null: unknown */
  isActive: boolean | null
  isHere: boolean
  wantedUrl: string
}

/** Throws a FatalError for a refusal by LINE, and `platform_unavailable` if LINE is unavailable. */
export async function findWebhook(
  { lineApi, publicUrl }: Pick<WebhookParts, 'lineApi' | 'publicUrl'>,
  account: Account,
): Promise<CurrentWebhook> {
  const current = await lineApi.webhookEndpoint(account)
  if (!current.ok && !isNotSet(current.fault)) throw toError(current.fault)
  return {
    url: (current.ok && current.value.endpoint) || null,
    isActive: current.ok ? current.value.active : null,
    isHere: current.ok && isWebhookOf(current.value.endpoint, publicUrl, account.id),
    wantedUrl: webhookUrl(publicUrl, account.id),
  }
}

/** LINE applies it within a minute. Throws like findWebhook, and if LINE identifies another account. */
export async function replaceWebhook(
  { database, lineApi, publicUrl, actor }: WebhookParts,
  account: Account,
  { url, wantedUrl }: CurrentWebhook,
): Promise<void> {
  await requireIdentity(lineApi, account)
  if (url !== null) refuseOtherAccount(url, publicUrl)
  const set = await lineApi.setWebhookEndpoint(account, wantedUrl)
  if (!set.ok && set.fault.type === 'refused' && set.fault.status === 400)
    throw new FatalError(`LINE does not accept the webhook URL ${wantedUrl} (status 400): check PUBLIC_URL`)
  if (!set.ok) throw toError(set.fault)
  const changes = { url: [url && withoutSecrets(url), wantedUrl] }
  await database.transaction((transaction) =>
    recordAccount(transaction, actor, 'account.webhook_set', account, changes),
  )
}

/** The URL of another tool may have a secret in its query or its user name. */
function withoutSecrets(url: string): string {
  if (!URL.canParse(url)) return '…'
  const { protocol, host, pathname, search } = new URL(url)
  return `${protocol}//${host}${pathname}${search === '' ? '' : '?…'}`
}

interface WebhookStep {
  isSet: boolean
  /** null: unknown */
  isActive: boolean | null
  /** LINE's refusal */
  problem: string | null
}

/** Throws `platform_unavailable` if LINE is unavailable. */
export async function pointWebhookHere(parts: WebhookParts, account: Account): Promise<WebhookStep> {
  try {
    const current = await findWebhook(parts, account)
    if (!current.isHere) await replaceWebhook(parts, account, current)
    return { isSet: !current.isHere, isActive: current.isActive, problem: null }
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return { isSet: false, isActive: null, problem: error.message }
  }
}

const isNotSet = (fault: PlatformFault) => fault.type === 'refused' && fault.status === 404

/** With an access token of another channel, the command would take over the webhook of that channel. */
async function requireIdentity(lineApi: LineApi, account: Account): Promise<void> {
  const info = await lineApi.botInfo(account)
  if (!info.ok) throw toError(info.fault)
  const check = identityCheck(account, {}, info.value)
  if (!check.ok) throw new FatalError(check.message)
  const token = await lineApi.tokenInfo(account)
  if (!token.ok && token.fault.type === 'unavailable') throw toError(token.fault)
  const channelId = token.ok ? (token.value?.channelId ?? null) : null
  if (channelId !== null && channelId !== account.channelId) {
    throw new FatalError(
      `The access token belongs to channel ${channelId}, not to channel ${account.channelId}: store the token of this channel`,
    )
  }
}

/** Two accounts with one channel would take the webhook from each other again and again. */
function refuseOtherAccount(endpoint: string, publicUrl: string | null): void {
  const other = /\/(-?\d+)$/.exec(endpoint)?.[1]
  if (other === undefined || !isWebhookOf(endpoint, publicUrl, BigInt(other))) return
  throw new FatalError(
    `LINE's webhook URL is that of account ${other}, which has the same channel. To move it on purpose, clear it in the LINE Developers Console first`,
  )
}

function webhookUrl(publicUrl: string | null, id: AccountId): string {
  const [path = ''] = deliveryPaths(String(id))
  return (publicUrl ?? '') + path
}

/** @param publicUrl null: only paths are compared */
function isWebhookOf(endpoint: string, publicUrl: string | null, id: AccountId): boolean {
  return deliveryPaths(String(id)).some((path) => isSameAddress(endpoint, (publicUrl ?? '') + path))
}

function toError(fault: PlatformFault): FatalError | AppError {
  return fault.type === 'unavailable'
    ? new AppError('platform_unavailable', { retryAfterSeconds: fault.retryAfterSeconds })
    : new FatalError(refusedCheck('access_token', fault).message)
}
