/** The tags and sources that members of an account have, which the forms of the console suggest. */
import type { AccountId } from '../ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** More than a person reads in a list. */
const SUGGESTED_MAX = 100

/** Reads one entry of the index for each tag and each source, however many members have it. $1 bigint: account; $2 int: at most */
const selectSuggestions = statement('select-suggestions')`
    with recursive tag (name, number) as (
      (select tag, 1 from audience_tag where channel_oa_id = $1 order by tag limit 1)
       union all
      select (select tag from audience_tag where channel_oa_id = $1 and tag > name order by tag limit 1), number + 1
        from tag where name is not null and number < $2
    ), source (name, number) as (
      (select source, 1 from audience_member where channel_oa_id = $1 and source is not null order by source limit 1)
       union all
      select (select m.source from audience_member m where m.channel_oa_id = $1 and m.source > name order by m.source limit 1), number + 1
        from source where name is not null and number < $2
    )
    select array(select name from tag where name is not null order by name) as tags,
           array(select name from source where name is not null order by name) as sources`

export type Suggestions = { tags: string[]; sources: string[] }

export async function listSuggestions(database: Queryable, accountId: AccountId): Promise<Suggestions> {
  const [found] = await database.query<Suggestions>(selectSuggestions, [accountId, SUGGESTED_MAX])
  return found ?? { tags: [], sources: [] }
}
