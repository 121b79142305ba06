/** Brings one stored account into service on the platform: webhook URL, test, verification, followers. */

import { importNextFollowers, isImportCompleted } from '../audience/import/import-followers.ts'
import { UnreadableSecret } from '../config/secret-keys.ts'
import { AppError, FatalError } from '../errors.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import { type Account, type AccountId, findAccountOn } from './account.ts'
import { findVerification } from './accounts.ts'
import { recordAccount, verifyAccount } from './manage-accounts.ts'
import {
  isWebhookOf,
  NO_WEBHOOK,
  type Onboarding,
  pointWebhookHere,
  type WebhookStep,
} from './point-webhook.ts'
import type { Verification } from './verification.ts'

export type Outcome = {
  webhook: WebhookStep['state']
  replacedUrl: string | null
  /** null if LINE did not test the webhook in this run */
  webhookTest: 'ok' | 'failed' | null
  verified: boolean | null
  followers: 'imported' | 'imported earlier' | 'not allowed' | 'skipped' | 'failed'
  followersAdded: number | null
  /** the switch "Use webhook"; null: unknown */
  webhookActive: boolean | null
  /** what the operator has to fix; null if this program found nothing */
  problem: string | null
}

const NOTHING_DONE: Outcome = {
  webhook: 'skipped',
  replacedUrl: null,
  webhookTest: null,
  verified: null,
  followers: 'skipped',
  followersAdded: null,
  webhookActive: null,
  problem: null,
}

/** Never throws for a fault of the account, the platform or the database. Skips steps that an earlier run has completed. */
export async function onboard(onboarding: Onboarding, id: AccountId): Promise<Outcome> {
  const outcome = { ...NOTHING_DONE }
  try {
    await runSteps(onboarding, id, outcome)
  } catch (error) {
    const isKnown = [AppError, FatalError, UnreadableSecret].some((kind) => error instanceof kind)
    if (!isKnown) throw error
    outcome.problem = (error as Error).message
  }
  return outcome
}

/** Each step records its result, so that a later failure does not hide it. */
async function runSteps(onboarding: Onboarding, id: AccountId, outcome: Outcome): Promise<void> {
  const { database, setsWebhook } = onboarding
  const account = await findAccountOn(database, id)
  if (account === null) throw new FatalError(`account ${id} was removed meanwhile`)
  outcome.webhook = setsWebhook ? 'failed' : 'skipped'
  const webhook = setsWebhook ? await pointWebhookHere(onboarding, account) : NO_WEBHOOK
  outcome.webhook = webhook.state
  outcome.replacedUrl = webhook.replacedUrl
  const earlier = await findVerification(database, id)
  const isDone =
    earlier !== null &&
    webhook.state !== 'set' &&
    webhook.problem === null &&
    webhook.isActive !== false &&
    isComplete(earlier, onboarding, account)
  const testsWebhook = setsWebhook && webhook.problem === null
  const verification = isDone ? earlier : await verify(onboarding, account, testsWebhook)
  outcome.verified = verification.verified
  outcome.webhookActive = verification.webhook?.active ?? null
  if (!isDone) outcome.webhookTest = testResultOf(verification)
  outcome.problem = webhook.problem ?? problemOf(verification, setsWebhook)
  // The credentials may belong to another account, whose followers must not become members of this account.
  if (outcome.problem === null && onboarding.importsFollowers)
    await addFollowers(onboarding, account, verification, outcome)
}

/** Whether a stored verification shows that nothing is left to do. */
function isComplete(
  { verified, webhook }: Verification,
  { setsWebhook, publicUrl }: Onboarding,
  account: Account,
): boolean {
  if (!verified || webhook === null || webhook.endpoint === null) return false
  return (
    !setsWebhook || (webhook.test?.success === true && isWebhookOf(webhook.endpoint, publicUrl, account.id))
  )
}

function verify(
  { database, lineApi, publicUrl, actor }: Onboarding,
  account: Account,
  testWebhook: boolean,
): Promise<Verification> {
  const verifier = { database, lineApi, publicUrl, webhookPaths: deliveryPaths, now: Date.now }
  return verifyAccount(verifier, actor, account, { testWebhook })
}

function testResultOf({ checks }: Verification): 'ok' | 'failed' | null {
  const check = checks.find(({ name }) => name === 'webhook_test')
  if (check === undefined) return null
  return check.ok ? 'ok' : 'failed'
}

/** The first failed check. "Use webhook" is excluded, because only LINE's console can change it, and the report lists it separately. */
function problemOf({ checks }: Verification, setsWebhook: boolean): string | null {
  const ignored = setsWebhook ? ['webhook_active'] : ['webhook_active', 'webhook_endpoint']
  return checks.find(({ name, ok }) => ok === false && !ignored.includes(name))?.message ?? null
}

async function addFollowers(
  onboarding: Onboarding,
  account: Account,
  { accountType }: Verification,
  outcome: Outcome,
): Promise<void> {
  if (await isImportCompleted(onboarding.database, account.id)) {
    outcome.followers = 'imported earlier'
    return
  }
  if (accountType === 'unverified') outcome.followers = 'not allowed'
  if (accountType !== 'verified_or_premium') return
  outcome.followers = 'failed'
  for (let isComplete = false; !isComplete; ) {
    const page = await importPage(onboarding, account)
    outcome.followersAdded = page.added
    isComplete = page.isComplete
  }
  outcome.followers = 'imported'
}

/** A page is stored in its own transaction, with its continuation token. Repeating it changes nothing. */
export function importPage(
  { database, lineApi, actor }: Pick<Onboarding, 'database' | 'lineApi' | 'actor'>,
  account: Account,
) {
  return importNextFollowers(database, lineApi, account, (transaction, changes) =>
    recordAccount(transaction, actor, { action: 'followers_imported', account, changes: { ...changes } }),
  )
}
