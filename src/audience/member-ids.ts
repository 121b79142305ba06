/** Other programs may load members with ids of their own: then the next ids of ours are taken already. */
import type { AccountId } from '../accounts/account.ts'
import type { Queryable } from '../postgres/statement.ts'

/** The constraint that a member of ours violates when its id is taken. */
export const MEMBER_ID_TAKEN = 'audience_member_pkey'

/** Ids above this are left alone: whoever made them did not count up to there. */
const MEMBER_ID_MAX = 2n ** 62n

/** Moves our ids past those that are taken in the accounts. */
export async function skipTakenMemberIds(database: Queryable, accountIds: AccountId[]): Promise<void> {
  await database.query(
    `select setval(pg_get_serial_sequence('audience_member', 'id'), greatest(max(id), nextval(pg_get_serial_sequence('audience_member', 'id'))))
       from audience_member where channel_oa_id = any ($1) and id < $2`,
    [accountIds, MEMBER_ID_MAX],
  )
}
