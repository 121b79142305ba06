/** What events do to the database, as SQL. How they get there: flush.ts. */
import { chatInboxOf } from '../accounts/account.ts'
import { NO_KEY } from '../audience/member.ts'
import { type Statement, variant } from '../postgres/statement.ts'

/**
 * What a batch has beside events that only say "seen at that time", which most are. What it has not is left out of its
 * statement, because a part costs its start (10 to 60 µs) even where it has no rows.
 */
export interface BatchParts {
  /** follows, unfollows, conversations */
  states: boolean
  /** people who joined or left, beside the source */
  others: boolean
  /** events of people's browsers, which make no member */
  tracked: boolean
}

/**
 * Stores the events that are new and applies them to members. Values: four arrays for the admissions, nine for the
 * events, then four for the states and two for the others, where the batch has such parts.
 *
 * What an event does to a member is commutative and idempotent: counts add up distinct events, first and last
 * seen are a minimum and a maximum, relationship and conversation are the newest by (time, key). So neither
 * order nor repetition nor the instance that flushes can matter.
 *
 * Keys are looked up and inserted plainly, not `on conflict do nothing`: a key that another flush makes at the same
 * moment is a violation of its unique key, the whole batch is rolled back and flushed again, and then sees it.
 * Members are upserted in key order, one lock after the other: an update by a join would lock them in whatever order
 * the planner likes, and two flushes would deadlock.
 */
export function applyEvents(parts: BatchParts): Statement {
  const name = ['apply-events', ...Object.entries(parts).flatMap(([part, has]) => (has ? part : []))].join(
    '-',
  )
  return variant(name, () => applyEventsText(parts))
}

/** What admits a delivery of a source: the account must still have it. */
export const credentialOf = (account: string, source: string): string => `case ${source}
             when 'line' then ${account}.channel_secret
             when 'mbox' then concat(${account}.oa_hash, ' ', ${account}.chat_secret, ' ', ${chatInboxOf(account)})
             when 'tracking' then ${account}.tracking_key end`

function applyEventsText({ states, others, tracked }: BatchParts): string {
  const whereStates = (text: string) => (states ? text : '')
  const whereOthers = (text: string) => (others ? text : '')
  const whereTracked = (text: string) => (tracked ? text : '')
  return `
    with admission as materialized (
      -- Most accounts have erased nobody and unsent nothing: then no event of theirs needs to be looked up.
      select d.no as admission_no, d.source, a.id as channel_oa_id, a.organization_id, a.person_key,
             exists (select from erased_person x where x.channel_oa_id = a.id) as has_erased,
             exists (select from unsent_message u where u.channel_oa_id = a.id) as has_unsent
        from unnest($1::int[], $2::bigint[], $3::text[], $4::text[]) as d (no, account_id, source, credential)
        join official_account a on a.id = d.account_id and d.credential = ${credentialOf('a', 'd.source')}
    ), told as materialized (
      -- Subqueries in the list of columns and not joins: the planner thinks that a batch has one row, and would
      -- join it in nested loops, 65,000 steps for 256 events.
      select a.source, a.channel_oa_id, a.organization_id, a.person_key, a.has_erased, e.*,
             not exists (select from event_key k where k.channel_oa_id = a.channel_oa_id and k.key = e.key) as is_fresh,
             ${isErased('a', 'e.occurred_at', 'e.user_id')} as is_erased,
             a.has_unsent and e.message_id is not null and exists (
               select from unsent_message u
                where u.channel_oa_id = a.channel_oa_id and u.message_id = e.message_id) as is_unsent
        from unnest($5::int[], $6::int[], $7::text[], $8::uuid[], $9::timestamptz[], $10::text[], $11::text[], $12::text[],
                    $13::text[]${whereStates(', $14::text[], $15::text[], $16::text[], $17::timestamptz[]')})
             as e (no, admission_no, kind, key, occurred_at, user_id, message_id, payload,
                   failure${whereStates(', relationship, conversation_id, conversation_status, conversation_at')})
        join admission a using (admission_no)
    ), remembered as (
      insert into event_key (channel_oa_id, key)
      select channel_oa_id, key from told where is_fresh order by channel_oa_id, key
    )${whereOthers(`, other as materialized (
      select e.no, e.channel_oa_id, e.organization_id, e.source, e.occurred_at, e.failure, p.user_id,
             ${isErased('e', 'e.occurred_at', 'p.user_id')} as is_erased
        from unnest($${states ? 18 : 14}::int[], $${states ? 19 : 15}::text[]) as p (no, user_id)
        join told e using (no) where e.is_fresh
    ), others as (
      select no, bool_or(is_erased) as some_erased, array_agg(user_id) filter (where not is_erased) as user_ids
        from other group by no
    )`)}, stored as (
      -- An event from before an erasure, or a message that was taken back, keeps its kind and time, so that it is
      -- known; nothing of its content.
      insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, message_id, failure,
                         ${whereOthers('other_user_ids, ')}payload)
      select e.channel_oa_id, e.source, e.kind, e.key, e.occurred_at,
             case when not e.is_erased then e.user_id end, case when not e.is_erased then e.message_id end, e.failure,
             ${whereOthers('o.user_ids, ')}case when not e.is_erased and not e.is_unsent${whereOthers(
               ' and o.some_erased is not true',
             )} then e.payload end
        from told e ${whereOthers('left join others o using (no) ')}where e.is_fresh
    ), person as (
      select channel_oa_id, organization_id, source, user_id, occurred_at,
             key${whereStates(', relationship, conversation_id, conversation_status, conversation_at')}
        from told where is_fresh and user_id is not null and not is_erased and failure is null${whereOthers(`
       union all
      select channel_oa_id, organization_id, source, user_id, occurred_at, null${whereStates(', null, null, null, null')}
        from other where not is_erased and failure is null`)}
    ), activity as ${tracked ? 'materialized ' : ''}(
      select channel_oa_id, organization_id, user_id, ${whereTracked("source = 'tracking' as tracked, ")}
             count(*) as event_count, min(occurred_at) as first_seen_at, max(occurred_at) as last_seen_at${whereStates(`,
             max(occurred_at) filter (where relationship = 'following') as followed_at,
             max(occurred_at) filter (where relationship = 'blocked') as blocked_at,
             -- the newest by (time, key): as texts that sort like what they say
             max(array[${sortable('occurred_at')}, key::text, relationship] collate "C")
               filter (where relationship is not null) as relationship,
             max(array[${sortable('conversation_at')}, key::text, conversation_id, conversation_status] collate "C")
               filter (where conversation_id is not null) as conversation`)}
        from person group by channel_oa_id, organization_id, user_id${whereTracked(", source = 'tracking'")}
       order by channel_oa_id, user_id
    ), applied as (
      insert into audience_member as m (
             channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at${whereStates(`,
             followed_at, blocked_at, relationship_at, relationship_key, relationship,
             conversation_at, conversation_key, conversation_id, conversation_status`)})
      select channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at${whereStates(`,
             followed_at, blocked_at,
             relationship[1]::timestamptz, relationship[2]::uuid, coalesce(relationship[3], 'unknown'),
             conversation[1]::timestamptz, conversation[2]::uuid, conversation[3], conversation[4]`)}
        from activity ${whereTracked('where not tracked ')}order by channel_oa_id, user_id
          on conflict on constraint audience_member_user do update set
             event_count = m.event_count + excluded.event_count,
             first_seen_at = least(m.first_seen_at, excluded.first_seen_at),
             last_seen_at = greatest(m.last_seen_at, excluded.last_seen_at)${whereStates(`,
             followed_at = greatest(m.followed_at, excluded.followed_at),
             blocked_at = greatest(m.blocked_at, excluded.blocked_at),
             ${newest('relationship', ['relationship', 'relationship_at', 'relationship_key'])},
             ${newest('conversation', ['conversation_id', 'conversation_status', 'conversation_at', 'conversation_key'])},
             -- who follows anew may have another name by now
             profile_due_at = case when excluded.followed_at > coalesce(m.followed_at, '-infinity')
                              then now() else m.profile_due_at end,
             updated_at = case
               when excluded.relationship_at is null and excluded.conversation_at is null then m.updated_at
               when ${isNewer('relationship')} or ${isNewer('conversation')}
                    or excluded.followed_at > coalesce(m.followed_at, '-infinity')
                    or excluded.blocked_at > coalesce(m.blocked_at, '-infinity')
               then greatest(clock_timestamp(), m.updated_at) else m.updated_at end`)}
    )${whereTracked(`, tracked as (
      insert into tracked_activity as t (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at)
      select channel_oa_id, user_id, event_count, first_seen_at, last_seen_at
        from activity where tracked order by channel_oa_id, user_id
          on conflict (channel_oa_id, user_id) do update set
             event_count = t.event_count + excluded.event_count,
             first_seen_at = least(t.first_seen_at, excluded.first_seen_at),
             last_seen_at = greatest(t.last_seen_at, excluded.last_seen_at),
             received_at = now()
    )`)}
    -- of the events that are not known, those of an admission that holds were accepted
    select (select array_agg(admission_no) from admission) as admitted,
           (select array_agg(no) from told where not is_fresh) as known`
}

/** Whether the event happened before its person was erased. False where it names nobody. */
function isErased(account: string, occurredAt: string, userId: string): string {
  return `${account}.has_erased and coalesce(${occurredAt} <= (
               select x.erased_at from erased_person x
                where x.channel_oa_id = ${account}.channel_oa_id
                  and x.person_hash = person_hash(${account}.person_key, ${userId})), false)`
}

function sortable(time: string): string {
  return `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

/**
 * Erases the content of messages that their senders took back, and remembers them for messages that come later. In
 * statements of their own, because such events are rare and the search costs what it costs. Only for events that this very
 * transaction let in: it has made their keys. The flush has locked everybody else out of the account, so no message slips by.
 */
export const eraseUnsent: Statement = {
  name: 'erase-unsent',
  text: `
    with unsend as materialized (
      select u.channel_oa_id, u.message_id
        from unnest($1::bigint[], $2::uuid[], $3::text[]) as u (channel_oa_id, key, message_id)
        join event_key k using (channel_oa_id, key) where k.received_at = now()
    ), remembered as (
      insert into unsent_message (channel_oa_id, message_id)
      select distinct channel_oa_id, message_id from unsend order by channel_oa_id, message_id
          on conflict do nothing
    )
    update event e set payload = null
      from unsend u
     where e.channel_oa_id = u.channel_oa_id and e.message_id = u.message_id and e.payload is not null`,
}

export const noteSuspensions: Statement = {
  name: 'note-suspensions',
  text: `
    with newest as (
      select distinct on (s.channel_oa_id) s.channel_oa_id, s.suspended, s.occurred_at, s.key
        from unnest($1::bigint[], $2::uuid[], $3::timestamptz[], $4::text[])
             as s (channel_oa_id, key, occurred_at, suspended)
        join event_key k using (channel_oa_id, key) where k.received_at = now()
       order by s.channel_oa_id, s.occurred_at desc, s.key desc
    )
    update official_account a
       set suspended = n.suspended::boolean, suspension_at = n.occurred_at, suspension_key = n.key
      from newest n
     where a.id = n.channel_oa_id
       and (n.occurred_at, n.key) > (coalesce(a.suspension_at, '-infinity'), coalesce(a.suspension_key, '${NO_KEY}'))`,
}

/** True where the batch knows a newer state than the member has. Most batches know none, which is told first. */
function isNewer(state: 'relationship' | 'conversation'): string {
  return `(excluded.${state}_at is not null and (excluded.${state}_at, excluded.${state}_key)
            > (coalesce(m.${state}_at, '-infinity'), coalesce(m.${state}_key, '${NO_KEY}')))`
}

function newest(state: 'relationship' | 'conversation', columns: string[]): string {
  return columns
    .map((column) => `${column} = case when ${isNewer(state)} then excluded.${column} else m.${column} end`)
    .join(',\n             ')
}
