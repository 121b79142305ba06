import type { AccountId } from '../accounts/account.ts'
import { type SendPipeline, statement } from '../postgres/statement.ts'

/** The constraint that a new member violates if its id is taken. */
export const MEMBER_ID_TAKEN = 'audience_member_pkey'

/** Advances generated ids beyond those of the accounts' members. */
export async function skipTakenMemberIds(send: SendPipeline, accountIds: AccountId[]): Promise<void> {
  await send([{ statement: skipTaken, values: [accountIds] }])
}

/**
 * $1 bigint[]: accounts. Ids are unique per account, so other accounts do not matter. Reads one row of each account. Without
 * statistics, max() over all of them would read every member.
 */
const skipTaken = statement('skip-taken-member-ids')`
    select skip_member_ids(max(last.id))
      from unnest($1::bigint[]) as account (id)
     cross join lateral (select m.id from audience_member m
                          where m.channel_oa_id = account.id and m.id < 4611686018427387904
                          order by m.id desc limit 1) last`
