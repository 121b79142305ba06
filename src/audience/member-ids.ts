/** Ids of members that another program loaded. */
import type { AccountId } from '../accounts/account.ts'
import type { Queryable } from '../postgres/statement.ts'
import { skipTakenIds } from '../postgres/taken-ids.ts'

/** The constraint that a member of ours violates when its id is taken. */
export const MEMBER_ID_TAKEN = 'audience_member_pkey'

/** In the accounts alone: in others the same ids may be taken without harm. */
export async function skipTakenMemberIds(database: Queryable, accountIds: AccountId[]): Promise<void> {
  await skipTakenIds(database, 'audience_member', 'channel_oa_id = any ($2)', [accountIds])
}
