/**
 * The statements of a search over all accounts. $1 is always the list of organizations that the operator may see (bigint[]; null:
 * all). `offset 0` makes a join one index lookup per row. Planner idioms: docs/planner.md.
 */
import { memberJson, withTrackedActivity } from '../audience/member.ts'
import { statement } from '../postgres/statement.ts'

const ACCOUNT_OF_MEMBER = `
      join lateral (
        select id, name from official_account a where a.id = m.channel_oa_id and visible(a.organization_id, $1) offset 0) a on true`

/** Driven by audience_member_any_user. $2 user ids text[]; $3 maximum number of rows int */
export const selectByUserIds = statement('search-by-user-ids')`
    select a.id as "accountId", a.name as "accountName", ${memberJson} as json
      from (select * from audience_member
             where hashtextextended(user_id, 0) = any (array(select hashtextextended(id, 0) from unnest($2::text[]) id))
            offset 0) m ${ACCOUNT_OF_MEMBER} ${withTrackedActivity}
     where m.user_id = any ($2)
     limit $3`

/** Driven by audience_member_any_external_id. $2 external id text; $3 maximum number of rows int */
export const selectByExternalId = statement('search-by-external-id')`
    select a.id as "accountId", a.name as "accountName", ${memberJson} as json
      from (select * from audience_member
             where external_id is not null and hashtextextended(external_id, 0) = hashtextextended($2, 0)
            offset 0) m ${ACCOUNT_OF_MEMBER} ${withTrackedActivity}
     where m.external_id = $2
     limit $3`

/** Without a limit, a statement of an operator who sees few accounts would read all of them. */
const EXAMINED_MAX = 2_000

/**
 * Driven by audience_member_name, whose n-grams contain the account. `+ 0` prevents the use of other indexes, which would return all
 * members of the account. `next` is the account after which the next statement begins; null: there are no more accounts.
 *
 * $2 after this account id bigint; $3 accounts int; $4 part of the display name text; $5 maximum number of rows int
 */
export const selectByName = statement('search-by-name')`
    with examined as materialized (
      select id, organization_id, name from official_account where id > $2 order by id limit ${EXAMINED_MAX}
    ), visible as materialized (
      select id, name from examined a where visible(a.organization_id, $1) order by id limit $3
    ), next as (
      select case when (select count(*) from visible) = $3 then (select max(id) from visible)
                  when (select count(*) from examined) = ${EXAMINED_MAX} then (select max(id) from examined)
             end as id
    )
    select next.id as next, found.*
      from next
      left join (
        select a.id as "accountId", a.name as "accountName", ${memberJson} as json
          from visible a
         cross join lateral (
           select * from audience_member
            where display_name is not null and name_ngrams(channel_oa_id, display_name) @> part_ngrams(a.id, $4)
              and channel_oa_id + 0 = a.id and strpos(lower(display_name), lower($4)) > 0
            limit $5) m ${withTrackedActivity}
         limit $5) found on true`

/** Reads all accounts. $2 text; $3 account id bigint or null; $4 maximum number of rows int */
export const selectAccounts = statement('search-visible-accounts')`
    select a.id, a.name, a.basic_id as "basicId", a.channel_id as "channelId", o.name as "organizationName"
      from (select id, organization_id, name, basic_id, channel_id, login_channel_ids, bot_user_id,
                   strpos(lower(name), lower($2)) as position, strpos(lower(basic_id), lower($2)) as basic_position
              from official_account a where visible(a.organization_id, $1) offset 0) a
      join lateral (select name from organization where id = a.organization_id offset 0) o on true
     where a.id = $3 or $2 in (a.channel_id, a.bot_user_id) or $2 = any (a.login_channel_ids) or a.position > 0 or a.basic_position > 0
     order by a.position = 0 and coalesce(a.basic_position, 0) = 0 desc, a.position = 1 desc, a.name, a.id
     limit $4`
