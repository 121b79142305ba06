/** Brings one stored account into service on the platform: webhook URL, test, verification, followers. */

import { importNextFollowers } from '../audience/import/import-followers.ts'
import { AppError, FatalError } from '../errors.ts'
import type { Actor } from '../operators/actor.ts'
import type { Transactions } from '../postgres/statement.ts'
import type { Account } from './account.ts'
import { findVerification } from './accounts.ts'
import { recordAccount, verifyAccount } from './manage-accounts.ts'
import { isWebhookOf, pointWebhookHere } from './point-webhook.ts'
import type { Verification } from './verification.ts'
import type { Verifier } from './verify.ts'

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

/** Never throws for a fault of the account or the platform. Skips what an earlier run has completed. */
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

/** Whether a stored verification shows that nothing is left to do. */
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

/** A page is stored in its own transaction, with its continuation token. Repeating it changes nothing. */
export function importPage(
  { database, lineApi, actor }: Pick<Onboarding, 'database' | 'lineApi' | 'actor'>,
  account: Account,
) {
  return importNextFollowers(database, lineApi, account, (transaction, changes) =>
    recordAccount(transaction, actor, { action: 'followers_imported', account, changes: { ...changes } }),
  )
}
