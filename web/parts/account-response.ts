import type { AccountDetails } from '../../src/accounts/accounts.ts'
import type { Verification } from '../../src/accounts/verification.ts'
import type { FleetAccount } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'

export interface AccountResponse {
  account: Omit<Json<AccountDetails>, 'oaHash'>
  verification: Verification | null
  facts: Json<FleetAccount>
  webhookPath: string
  publicUrl: string | null
}
