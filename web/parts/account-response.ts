import type { AccountDetails } from '../../src/accounts/accounts.ts'
import type { Verification } from '../../src/accounts/verification.ts'
import type { FleetAccount } from '../../src/watch/account-status.ts'
import type { Json } from '../api.ts'

export interface AccountResponse {
  account: Omit<Json<AccountDetails>, 'oaHash'>
  verification: Verification | null
  facts: Json<FleetAccount>
  webhookPath: string
  publicUrl: string | null
}

/** The tracking key proves nothing: each account has one. */
export const usesChatOrTracking = (account: AccountResponse['account']): boolean =>
  account.hasChatSecret || account.chatInboxId !== null || account.loginChannelIds.length > 0
