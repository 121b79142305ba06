/** Points LINE's webhook of an account at this service. */
import { setTimeout as sleep } from 'node:timers/promises'
import { secretOrNull } from '../config/secret.ts'
import { AppError, FatalError } from '../errors.ts'
import type { PlatformFault, PlatformResult } from '../line-api/call.ts'
import type { LineApi } from '../line-api/client.ts'
import type { WebhookEndpoint } from '../line-api/line-responses.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import type { Actor } from '../operators/actor.ts'
import type { Transactions } from '../postgres/statement.ts'
import { type Account, type AccountId, findAccountOn } from './account.ts'
import type { Plan } from './apply-accounts.ts'
import { identityCheck, isSameAddress, refusedCheck } from './checks.ts'
import { recordAccount } from './manage-accounts.ts'

/** LINE applies a new webhook URL within a minute. */
export const PROPAGATION_MAX_MS = 75_000
const PROPAGATION_POLL_MS = 2_000
/** Maximum length of a webhook URL that LINE accepts. */
const URL_MAX_LENGTH = 500

interface WebhookParts {
  database: Pick<Transactions, 'transaction'>
  lineApi: LineApi
  publicUrl: string | null
  actor: Actor
}

export interface Onboarding extends WebhookParts {
  database: Transactions
  /** if false, the webhook URL is neither set nor tested */
  setsWebhook: boolean
  /** if false, the caller imports them page by page */
  importsFollowers: boolean
  /** how long to wait until LINE has applied a new URL */
  propagationMaxMs: number
}

/** Returns why LINE cannot be given a webhook URL of this service, or null. */
export function publicUrlFault(publicUrl: string | null): string | null {
  if (publicUrl === null) return 'PUBLIC_URL is not set, so no webhook URL can be set.'
  if (!/^https:/i.test(publicUrl)) return 'PUBLIC_URL must begin with https://, which LINE requires.'
  // The longest URL of any account.
  if (webhookUrl(publicUrl, 2n ** 63n - 1n).length > URL_MAX_LENGTH)
    return `PUBLIC_URL is too long: LINE accepts ${URL_MAX_LENGTH} characters.`
  return null
}

/** What LINE has as the webhook of an account, and what this service would set. */
export interface CurrentWebhook {
  /** null: none is set */
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
    url: replacedUrlOf(current),
    isActive: current.ok ? current.value.active : null,
    isHere: current.ok && isWebhookOf(current.value.endpoint, publicUrl, account.id),
    wantedUrl: webhookUrl(publicUrl, account.id),
  }
}

/**
 * Sets the webhook URL of an account that LINE identifies as this one. LINE applies it within a minute. Throws like findWebhook.
 * @param current what the operator was shown, or what was read just before
 */
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
    recordAccount(transaction, actor, { action: 'webhook_set', account, changes }),
  )
}

/** The URL of another tool may have a secret in its query or its user name. */
function withoutSecrets(url: string): string {
  if (!URL.canParse(url)) return '…'
  const { protocol, host, pathname, search } = new URL(url)
  return `${protocol}//${host}${pathname}${search === '' ? '' : '?…'}`
}

export interface WebhookStep {
  state: 'set' | 'unchanged' | 'skipped' | 'failed'
  /** the replaced URL of another tool, so that the operator can undo the change; null if none */
  replacedUrl: string | null
  /** null: unknown */
  isActive: boolean | null
  problem: string | null
}

export const NO_WEBHOOK: WebhookStep = {
  state: 'skipped',
  replacedUrl: null,
  isActive: null,
  problem: null,
}

/** Returns LINE's refusal as a problem of the account. Throws `platform_unavailable` if LINE is unavailable. */
export async function pointWebhookHere(onboarding: Onboarding, account: Account): Promise<WebhookStep> {
  try {
    const current = await findWebhook(onboarding, account)
    if (current.isHere) return { ...NO_WEBHOOK, state: 'unchanged', isActive: current.isActive }
    await replaceWebhook(onboarding, account, current)
    await waitUntilApplied(onboarding, account)
    return { ...NO_WEBHOOK, state: 'set', replacedUrl: current.url }
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return { ...NO_WEBHOOK, state: 'failed', problem: error.message }
  }
}

function replacedUrlOf(current: PlatformResult<WebhookEndpoint>): string | null {
  return current.ok && current.value.endpoint !== '' ? current.value.endpoint : null
}

const isNotSet = (fault: PlatformFault) => fault.type === 'refused' && fault.status === 404

/**
 * Throws if the access token was issued for another channel, because the command would take over the webhook of that channel. A token
 * that is issued from channel id and secret is always correct.
 */
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

/** Two accounts with the same channel would repeatedly take the webhook from each other. */
function refuseOtherAccount(endpoint: string, publicUrl: string | null): void {
  const other = /\/(-?\d+)$/.exec(endpoint)?.[1]
  if (other === undefined || !isWebhookOf(endpoint, publicUrl, BigInt(other))) return
  throw new FatalError(
    `LINE's webhook URL is that of account ${other}, which has the same channel. To move it on purpose, clear it in the LINE Developers Console first`,
  )
}

async function waitUntilApplied(
  { lineApi, publicUrl, propagationMaxMs }: Onboarding,
  account: Account,
): Promise<void> {
  for (const deadlineMs = performance.now() + propagationMaxMs; ; await sleep(PROPAGATION_POLL_MS)) {
    const current = await lineApi.webhookEndpoint(account)
    if (current.ok && isWebhookOf(current.value.endpoint, publicUrl, account.id)) return
    if (performance.now() > deadlineMs) {
      throw new FatalError(
        `LINE has not applied the new webhook URL within ${PROPAGATION_MAX_MS / 1000} s: run the command again`,
      )
    }
  }
}

export type WebhookPreview = {
  webhook: 'set' | 'unchanged' | 'skipped' | 'unknown'
  replacedUrl: string | null
}

/** Returns what a run would do with the webhook URL. Changes nothing. */
export async function previewWebhook(
  { database, lineApi, publicUrl, setsWebhook }: Onboarding,
  { storedId, channelId, columns }: Plan,
): Promise<WebhookPreview> {
  if (!setsWebhook) return { webhook: 'skipped', replacedUrl: null }
  const stored = storedId === null ? null : await findAccountOn(database, storedId)
  const { channel_secret: secret = null, channel_access_token: token = null } = columns
  const current = await lineApi.webhookEndpoint({
    // LineApi keeps tokens and limits by account id, which a new account does not have. Channel ids are unique on LINE.
    id: storedId ?? -BigInt(channelId),
    channelId,
    channelSecret: secretOrNull(secret) ?? stored?.channelSecret ?? null,
    channelAccessToken: secretOrNull(token) ?? stored?.channelAccessToken ?? null,
  })
  if (!current.ok) return { webhook: isNotSet(current.fault) ? 'set' : 'unknown', replacedUrl: null }
  return storedId !== null && isWebhookOf(current.value.endpoint, publicUrl, storedId)
    ? { webhook: 'unchanged', replacedUrl: null }
    : { webhook: 'set', replacedUrl: replacedUrlOf(current) }
}

function webhookUrl(publicUrl: string | null, id: AccountId): string {
  const [path = ''] = deliveryPaths(String(id))
  return (publicUrl ?? '') + path
}

/** Whether a webhook URL is this service's URL for the account. If publicUrl is null, only paths are compared. */
export function isWebhookOf(endpoint: string, publicUrl: string | null, id: AccountId): boolean {
  return deliveryPaths(String(id)).some((path) => isSameAddress(endpoint, (publicUrl ?? '') + path))
}

function toError(fault: PlatformFault): FatalError | AppError {
  return fault.type === 'unavailable'
    ? new AppError('platform_unavailable', { retryAfterSeconds: fault.retryAfterSeconds })
    : new FatalError(refusedCheck('access_token', fault).message)
}
