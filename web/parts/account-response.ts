import type { Result } from '../operations.ts'

export type AccountResponse = Result<'account.show'>

/** The tracking key proves nothing: each account has one. */
export const usesChatOrTracking = (account: AccountResponse['account']): boolean =>
  account.hasChatSecret || account.chatInboxId !== null || account.loginChannelIds.length > 0
