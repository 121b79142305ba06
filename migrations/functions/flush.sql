-- Stores a batch of events and applies it to members, in one transaction. flush_events, at the end, calls the functions before it.
-- locks.sql has the locks.
--
--   position     the number of an admission or of an event in its arrays, from 1
--   admission    an account, with the version of its credentials by which the service accepted the delivery
--   admitted     admissions whose account still has that version; the events of the others are stale, and are not stored
--   owners       for each event, the account that it was stored for; null if it is stale or a duplicate
--   ineffective  events that change no member: duplicates, events from before an erasure, events that cannot be applied
--   effective    for each event, the account whose member it changes; null if it is stale or ineffective
--
-- A repeatable file: the service applies it again whenever it changes, see CONTRIBUTING.md.

-- Admit ---------------------------------------------------------------------------------------------------------------

-- The versions of all accounts with a bot user id in the organization of an account, as one number: it changes if one of them
-- changes, or if one is added or removed. 0 if there is none, and if there are more than 20 (ACCOUNTS_OF_BOT_MAX of
-- src/accounts/account.ts): the account in the path receives in both cases. With 10,000 accounts, reading all of them took
-- 5 ms per delivery in the flush, in which the deliveries of other organizations wait.
create or replace function versions_of_bot(path_account_id bigint, destination text) returns bigint language sql stable
  return (select case when count(*) > 20 then 0 else coalesce(bit_xor(credentials_version), 0) end
            from (select named.credentials_version
                    from official_account addressed join official_account named using (organization_id)
                   where addressed.id = path_account_id and named.bot_user_id = destination limit 21) candidate);

-- Returns the versions to compare with those of the accounts. A delivery for another bot needs the account in its path, which must
-- have the credentials, and all accounts with the bot, whose secrets the service has compared (decision 29). If none of them has
-- changed, the result is the receiving account's version. Otherwise it is null, and the delivery is stale. A condition in
-- flush_events would triple the time of every flush, because the planner would expect more accounts.
create or replace function versions_to_compare(
  account_ids bigint[], credentials_versions bigint[], path_account_ids bigint[], foreign_bots text[], bot_versions bigint[]
) returns bigint[] language plpgsql as $$
begin
  return array(
    select case when d.foreign_bot is null then d.version else (
             select a.credentials_version
               from official_account p
               join official_account a on a.id = d.account_id
              where p.id = d.path_account_id and p.credentials_version = d.version
                and versions_of_bot(p.id, d.foreign_bot) = d.bot_version) end
      from unnest(account_ids, credentials_versions, path_account_ids, foreign_bots, bot_versions)
           with ordinality as d (account_id, version, path_account_id, foreign_bot, bot_version, position)
     order by d.position);
end $$;

-- Members: events that anybody can send -------------------------------------------------------------------------------

-- Stores unproven events, which anybody can send, and counts them by user id. Events that cannot be applied are in `event`.
create or replace function track_activity(
  effective bigint[], proven boolean[], admissions int[], kinds text[], occurred_ats timestamptz[], user_ids text[], payloads text[]
) returns void language plpgsql as $$
begin
  insert into tracking_event (channel_oa_id, kind, occurred_at, user_id, payload)
  select e.account_id, e.kind, e.occurred_at, e.user_id, e.payload
    from unnest(effective, admissions, kinds, occurred_ats, user_ids, payloads)
         as e (account_id, admission, kind, occurred_at, user_id, payload)
   where e.account_id is not null and not proven[e.admission];
  insert into tracked_activity as t (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at)
  select e.account_id, e.user_id, count(*), min(e.occurred_at), max(e.occurred_at)
    from unnest(effective, admissions, occurred_ats, user_ids) as e (account_id, admission, occurred_at, user_id)
   where e.account_id is not null and not proven[e.admission] and e.user_id is not null
   group by e.account_id, e.user_id order by e.account_id, e.user_id
      on conflict (channel_oa_id, user_id) do update set
         event_count = least(t.event_count, 9223372036854775807 - excluded.event_count) + excluded.event_count,
         first_seen_at = least(t.first_seen_at, excluded.first_seen_at),
         last_seen_at = greatest(t.last_seen_at, excluded.last_seen_at),
         received_at = now(),
         -- Indexed. It changes once a month, so that most updates are heap-only.
         active_month = date_trunc('month', now() at time zone 'UTC')::date;
end $$;

-- Effects -------------------------------------------------------------------------------------------------------------

-- Whether a state is newer than the stored one. A stored state without a time or a key comes from no event, so an event is newer.
create or replace function is_newer(at timestamptz, key uuid, stored_at timestamptz, stored_key uuid) returns boolean
  language sql immutable parallel safe
  return ((at, key) > (stored_at, stored_key)) is not false;

-- This and apply_conversations are upserts, although the members exist and are locked. An upsert always finds its row by the unique
-- index. With wrong statistics, an update with a join may use another index and read the whole account. For the same reason, the
-- account is looked up per event (`offset 0`): a join may scan the index of all accounts.
create or replace function apply_relationships(
  effective bigint[], keys uuid[], occurred_ats timestamptz[], user_ids text[], relationships text[]
) returns void language plpgsql as $$
declare
  changed_at constant timestamptz := clock_timestamp();
begin
  insert into audience_member as m (channel_oa_id, organization_id, user_id, relationship, relationship_at,
                                    relationship_key, followed_at, blocked_at)
  select distinct on (account_id, user_id) account_id, organization_id, user_id, relationship, occurred_at, key,
         max(occurred_at) filter (where relationship = 'following') over person,
         max(occurred_at) filter (where relationship = 'blocked') over person
    from unnest(effective, keys, occurred_ats, user_ids, relationships) as e (account_id, key, occurred_at, user_id, relationship)
   cross join lateral (select organization_id from official_account where id = e.account_id offset 0) a
   where relationship is not null and user_id is not null
  window person as (partition by account_id, user_id)
   order by account_id, user_id, occurred_at desc, key desc
      on conflict on constraint audience_member_user do update set
         followed_at = greatest(m.followed_at, excluded.followed_at),
         blocked_at = greatest(m.blocked_at, excluded.blocked_at),
         relationship = case when is_newer(excluded.relationship_at, excluded.relationship_key, m.relationship_at,
                                           m.relationship_key) then excluded.relationship else m.relationship end,
         relationship_at = greatest(m.relationship_at, excluded.relationship_at),
         relationship_key = case when is_newer(excluded.relationship_at, excluded.relationship_key, m.relationship_at,
                                               m.relationship_key)
                            then excluded.relationship_key else m.relationship_key end,
         -- A person who follows again may have a new name.
         profile_due_at = case when excluded.followed_at > coalesce(m.followed_at, '-infinity')
                          then now() else m.profile_due_at end,
         updated_at = greatest(changed_at, m.updated_at), change = next_change()
   where is_newer(excluded.relationship_at, excluded.relationship_key, m.relationship_at, m.relationship_key)
      or excluded.followed_at > coalesce(m.followed_at, '-infinity')
      or excluded.blocked_at > coalesce(m.blocked_at, '-infinity');
end $$;

create or replace function apply_conversations(
  effective bigint[], keys uuid[], user_ids text[],
  conversation_ids text[], conversation_statuses text[], conversation_ats timestamptz[]
) returns void language plpgsql as $$
declare
  changed_at constant timestamptz := clock_timestamp();
begin
  -- Most events of a chat leave id and status as they are. Those must not wake clients, nor leave the heap-only update.
  insert into audience_member as m (channel_oa_id, organization_id, user_id, conversation_id, conversation_status,
                                    conversation_at, conversation_key)
  select distinct on (account_id, user_id) account_id, organization_id, user_id, conversation_id, status, at, key
    from unnest(effective, keys, user_ids, conversation_ids, conversation_statuses, conversation_ats)
         as e (account_id, key, user_id, conversation_id, status, at)
   cross join lateral (select organization_id from official_account where id = e.account_id offset 0) a
   where conversation_id is not null and user_id is not null
   order by account_id, user_id, at desc, key desc
      on conflict on constraint audience_member_user do update set
         conversation_id = excluded.conversation_id, conversation_status = excluded.conversation_status,
         conversation_at = excluded.conversation_at, conversation_key = excluded.conversation_key,
         updated_at = case when (excluded.conversation_id, excluded.conversation_status)
                                is distinct from (m.conversation_id, m.conversation_status)
                      then greatest(changed_at, m.updated_at) else m.updated_at end,
         change = case when (excluded.conversation_id, excluded.conversation_status)
                            is distinct from (m.conversation_id, m.conversation_status)
                  then next_change() else m.change end
   where is_newer(excluded.conversation_at, excluded.conversation_key, m.conversation_at, m.conversation_key);
end $$;

-- Erases the content of unsent messages, and stores their ids for messages that arrive later.
create or replace function apply_unsends(owners bigint[], unsent_messages text[]) returns void language plpgsql as $$
begin
  insert into unsent_message (channel_oa_id, message_id)
  select distinct owner, message_id from unnest(owners, unsent_messages) as u (owner, message_id)
   where owner is not null and message_id is not null
   order by 1, 2
      on conflict do nothing;
  update event e
     set payload = null
    from unnest(owners, unsent_messages) as u (owner, message_id)
   where e.channel_oa_id = u.owner and e.message_id = u.message_id and e.payload is not null;
end $$;

-- Stores what the platform says about an account: suspended or resumed, and whether a module channel was attached or detached. There is
-- one statement per account, in the order of ids, because an update with a join may read all accounts.
create or replace function apply_account_states(
  owners bigint[], keys uuid[], occurred_ats timestamptz[], states text[]
) returns void language plpgsql as $$
declare
  newest record;
begin
  for newest in
    select distinct on (account_id, is_module) account_id, is_module, key, occurred_at, state
      from unnest(owners, keys, occurred_ats, states) as e (account_id, key, occurred_at, state)
     cross join lateral (select state in ('attached', 'detached') as is_module) kind
     where account_id is not null and state is not null
     order by account_id, is_module, occurred_at desc, key desc
  loop
    if newest.is_module then
      update official_account a
         set module_attached = newest.state = 'attached', module_at = newest.occurred_at, module_key = newest.key
       where a.id = newest.account_id and is_newer(newest.occurred_at, newest.key, a.module_at, a.module_key);
    else
      update official_account a
         set suspended = newest.state = 'suspended', suspension_at = newest.occurred_at, suspension_key = newest.key
       where a.id = newest.account_id and is_newer(newest.occurred_at, newest.key, a.suspension_at, a.suspension_key);
    end if;
  end loop;
end $$;

-- Deliveries to endpoints ---------------------------------------------------------------------------------------------

-- Queues one row per delivery and endpoint. Rows of active endpoints are leased to the caller, which sends them from memory. The lease
-- of 30 s is LEASE_MS in src/endpoints/claims.ts.
--
-- Conditions are evaluated here, after the effects of the events, and so is who may reply: retries do not change either. The events are
-- stored already, with the endpoints that have no condition. Only an account with conditions pays for the update of its events.
create or replace function queue_deliveries(
  owners bigint[], kinds text[], keys uuid[], user_ids text[], deliveries int[], destinations text[],
  out leased_ids bigint[], out leased_accounts bigint[], out leased_endpoints bigint[]
) language plpgsql as $$
declare
  conditional_events int[];
  conditional_endpoints bigint[];
begin
  with received as materialized (
    select r.*, e.owner, e.key, e.delivery, e.destination
      from endpoints_of(owners, kinds, user_ids) r
      join unnest(owners, keys, deliveries, destinations) with ordinality as e (owner, key, delivery, destination, position)
        on e.position = r.event
     where e.delivery is not null
  ), queued as (
    insert into endpoint_delivery as d (channel_oa_id, endpoint_id, destination, event_keys, replies, reply_keys, attempts, leased_until)
    select owner, endpoint_id, max(destination), array_agg(key order by event), bool_or(may_reply),
           case when bool_or(may_reply) and not bool_and(may_reply) then array_agg(key) filter (where may_reply) end,
           case when status = 'active' then 1 else 0 end,
           case when status = 'active' then now() + interval '30 seconds' else '-infinity' end
      from received
     group by owner, endpoint_id, status, delivery
     order by delivery
    returning d.id, d.channel_oa_id, d.endpoint_id, d.attempts
  )
  select leased.*, conditional.*
    into leased_ids, leased_accounts, leased_endpoints, conditional_events, conditional_endpoints
    from (select array_agg(id), array_agg(channel_oa_id), array_agg(endpoint_id) from queued where attempts = 1) leased,
         (select array_agg(event), array_agg(endpoint_id) from received where is_conditional) conditional;
  if conditional_events is not null then
    update event e set queued_for = e.queued_for || c.endpoint_ids
      from (select event, array_agg(endpoint_id order by endpoint_id) as endpoint_ids
              from unnest(conditional_events, conditional_endpoints) as q (event, endpoint_id) group by event) c
     where e.channel_oa_id = owners[c.event] and e.key = keys[c.event] and e.received_at = now() and e.is_forwarded;
  end if;
end $$;

-- The flush -----------------------------------------------------------------------------------------------------------

-- Stores new events and applies them to members. Event n consists of the nth element of each array from `admissions` to
-- `destinations`. An array is null if no event of the batch needs it.
--
-- The effect of an event on a member is commutative and idempotent: the count adds distinct acts of the person, first and last seen
-- are the minimum and maximum of their times, relationship and conversation are the newest by (time, key). So the order, duplicates
-- and the flushing instance do not matter.
create or replace function flush_events(
  -- ADMIT. The account with its credentials_version, the source, and whether the user ids can be trusted. Anybody can send tracking
  -- events, so unproven ones create no member.
  account_ids bigint[], credentials_versions bigint[], sources text[], proven boolean[],
  -- For a delivery for another bot than that of the account in its path: the account in the path, to which credentials_versions then
  -- belongs, the bot user id, and versions_of_bot when the account was chosen. account_ids has the account that receives the events.
  -- Otherwise null.
  path_account_ids bigint[], foreign_bots text[], bot_versions bigint[],
  -- DEDUPLICATE. Events, each once, as they are stored. `admissions` are positions in account_ids.
  admissions int[], kinds text[], keys uuid[], occurred_ats timestamptz[], user_ids text[],
  group_ids text[], message_ids text[], payloads text[], failures text[],
  -- MEMBERS. The time by the sender's clock, if it is earlier than occurred_ats. An erasure compares this time.
  claimed_ats timestamptz[],
  -- False: the event is not an act of the person, as when an agent closes a conversation. It creates a member but does not count.
  -- Null: it is an act.
  own_acts boolean[],
  -- Other people who joined or left: the event's position, and the person.
  other_events int[], other_people text[],
  -- EFFECTS, one element per event. Null: the event has no such effect.
  relationships text[],
  conversation_ids text[], conversation_statuses text[], conversation_ats timestamptz[],
  unsent_messages text[],
  account_states text[],
  -- Where the person came from.
  touch_sources text[], touch_mediums text[], touch_campaigns text[],
  -- DELIVERIES to endpoints: the number of the event's delivery in this batch (null: the event is not forwarded), and the delivery's
  -- destination if it is not the account's bot user id.
  deliveries int[], destinations text[],
  -- Positions of the admissions that are not stale, and of the events that were already stored.
  out admitted int[], out duplicates int[],
  -- Rows of endpoint_delivery that the caller has leased, with their accounts and endpoints.
  out leased_ids bigint[], out leased_accounts bigint[], out leased_endpoints bigint[]
) language plpgsql as $$
declare
  ineffective int[];
  forwards boolean;
  has_touches boolean;
  -- Bounds of the keys. With them, PostgreSQL opens one or two partitions of event_key instead of all.
  least_key uuid := keys[1];
  greatest_key uuid := keys[1];
  next_key uuid;
  owners bigint[];
  effective bigint[];
  -- Accounts for which an unsend erases content, which excludes other flushes.
  erasing bigint[] := '{}';
begin
  -- ADMIT
  if unsent_messages is not null then
    erasing := array(select account_ids[u.admission] from unnest(admissions, unsent_messages) as u (admission, message_id)
                      where u.message_id is not null);
  end if;
  perform lock_out_erasures(account_ids, erasing);
  if foreign_bots is not null then
    credentials_versions := versions_to_compare(account_ids, credentials_versions, path_account_ids, foreign_bots, bot_versions);
  end if;

  -- DEDUPLICATE and MEMBERS
  foreach next_key in array keys loop
    if next_key < least_key then least_key := next_key; end if;
    if next_key > greatest_key then greatest_key := next_key; end if;
  end loop;

  -- One statement, because with separate functions a flush would take 5 % longer.
  with admission as materialized (
    -- Most accounts have no erasures and no unsent messages. Their events need no further lookup.
    select d.position, d.source, d.is_proven, a.id as account_id, a.organization_id, a.person_key,
           exists (select from erased_person x where x.channel_oa_id = a.id) as has_erased,
           exists (select from unsent_message u where u.channel_oa_id = a.id) as has_unsent,
           exists (select from endpoint p where p.channel_oa_id = a.id and p.format = 'line') as forwards
      from unnest(account_ids, credentials_versions, sources, proven)
           with ordinality as d (account_id, version, source, is_proven, position)
      join official_account a on a.id = d.account_id and a.credentials_version = d.version
  ), incoming as materialized (
    -- Subqueries instead of joins, because the planner expects few rows and would use nested loops.
    select a.account_id, a.organization_id, a.person_key, a.has_erased, a.source, a.is_proven, a.forwards, e.*,
           not exists (select from event_key k
                        where k.channel_oa_id = a.account_id and k.key = e.key
                          and k.key between least_key and greatest_key) as is_new,
           -- An event that is not the person's act creates no member of an erased person, but updates one who came back.
           a.has_erased and coalesce((
             select coalesce(claimed_ats[e.position], e.occurred_at) <= x.erased_at
                    or own_acts[e.position] is false
                       and not exists (select from audience_member m
                                        where m.channel_oa_id = a.account_id and m.user_id = e.user_id)
               from erased_person x
              where x.channel_oa_id = a.account_id and x.person_hash = person_hash(a.person_key, e.user_id)), false)
             as is_erased,
           a.has_unsent and e.message_id is not null and exists (
             select from unsent_message u where u.channel_oa_id = a.account_id and u.message_id = e.message_id)
             as is_unsent
      from unnest(admissions, kinds, keys, occurred_ats, user_ids, group_ids, message_ids, payloads, failures)
           with ordinality as e (admission, kind, key, occurred_at, user_id, group_id, message_id, payload, failure,
                                 position)
      join admission a on a.position = e.admission
  ), other as materialized (
    select e.position, e.account_id, e.organization_id, e.occurred_at, e.failure, p.user_id,
           e.has_erased and coalesce(e.occurred_at <= (
             select x.erased_at from erased_person x
              where x.channel_oa_id = e.account_id and x.person_hash = person_hash(e.person_key, p.user_id)), false)
             as is_erased
      from unnest(other_events, other_people) as p (event, user_id)
      join incoming e on e.position = p.event and e.is_new
  ), new_key as (
    -- Not `on conflict do nothing`: if another flush inserts the same key first, this flush must fail and be repeated.
    insert into event_key (channel_oa_id, key)
    select account_id, key from incoming where is_new order by account_id, key
  ), new_event as (
    -- An event from before an erasure, or an unsent message, is stored with its kind and time but without content.
    insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, other_user_ids, group_id, message_id,
                       payload, failure, is_forwarded, queued_for)
    select e.account_id, e.source, e.kind, e.key, e.occurred_at,
           case when not e.is_erased then e.user_id end, o.user_ids, case when not e.is_erased then e.group_id end,
           case when not e.is_erased then e.message_id end,
           case when not e.is_erased and not e.is_unsent and o.some_erased is not true then e.payload end, e.failure,
           e.forwards,
           -- queue_deliveries adds the endpoints whose condition holds.
           case when e.forwards then array(
             select p.id from (select * from endpoint where channel_oa_id = e.account_id offset 0) p
              where deliveries[e.position] is not null and p.format = 'line' and receives_kind(p.events, e.kind)
                and p.condition is null) end
      from incoming e
      left join (select position, bool_or(is_erased) as some_erased,
                        array_agg(user_id) filter (where not is_erased) as user_ids
                   from other group by position) o using (position)
     where e.is_new and (e.is_proven or e.failure is not null)
  ), member as (
    -- Locks rows in key order. An update with a join would lock them in the order of its plan, and flushes could deadlock.
    insert into audience_member as m (channel_oa_id, organization_id, user_id, event_count, first_seen_at, last_seen_at)
    select account_id, organization_id, user_id, count(acted_at), min(acted_at), max(acted_at)
      from (select account_id, organization_id, user_id,
                   case when own_acts[position] is not false then occurred_at end as acted_at from incoming
             where is_new and user_id is not null and not is_erased and failure is null and is_proven
             union all
            select account_id, organization_id, user_id, occurred_at from other
             where not is_erased and failure is null) person
     group by account_id, organization_id, user_id order by account_id, user_id
        on conflict on constraint audience_member_user do update set
           -- Saturates, because other programs may load counts near the greatest bigint.
           event_count = least(m.event_count, 9223372036854775807 - excluded.event_count) + excluded.event_count,
           first_seen_at = least(m.first_seen_at, excluded.first_seen_at),
           last_seen_at = greatest(m.last_seen_at, excluded.last_seen_at)
     where excluded.event_count > 0
  )
  select (select array_agg(position) from admission),
         (select array_agg(position) from incoming where not is_new),
         (select array_agg(position) from incoming where not is_new or is_erased or failure is not null),
         (select bool_or(a.forwards) from admission a)
    into admitted, duplicates, ineffective, forwards;

  has_touches := touch_sources is not null or touch_campaigns is not null;
  if false = any (proven) or relationships is not null or conversation_ids is not null or has_touches then
    effective := array(
      select case when admission = any (admitted) and position <> all (coalesce(ineffective, '{}')) then account_ids[admission] end
        from unnest(admissions) with ordinality as e (admission, position) order by position);
  end if;
  if false = any (proven) then
    perform track_activity(effective, proven, admissions, kinds, occurred_ats, user_ids, payloads);
  end if;
  -- EFFECTS
  if has_touches or 'following' = any (relationships) then
    perform apply_sources(effective, keys, occurred_ats, user_ids, relationships, touch_sources, touch_mediums, touch_campaigns);
  end if;
  if relationships is not null then
    perform apply_relationships(effective, keys, occurred_ats, user_ids, relationships);
  end if;
  if conversation_ids is not null then
    perform apply_conversations(effective, keys, user_ids, conversation_ids, conversation_statuses, conversation_ats);
  end if;
  if unsent_messages is not null or account_states is not null or deliveries is not null and forwards then
    owners := array(
      select case when admission = any (admitted) and position <> all (coalesce(duplicates, '{}')) then account_ids[admission] end
        from unnest(admissions) with ordinality as e (admission, position) order by position);
  end if;
  if unsent_messages is not null then
    perform apply_unsends(owners, unsent_messages);
  end if;
  if account_states is not null then
    perform apply_account_states(owners, keys, occurred_ats, account_states);
  end if;
  -- DELIVERIES
  if forwards and deliveries is not null then
    select * from queue_deliveries(owners, kinds, keys, user_ids, deliveries, destinations)
      into leased_ids, leased_accounts, leased_endpoints;
  end if;
end $$;

-- Of 0.3, without touches. Instances of that version run during an upgrade. 0.5.0 drops it.
create or replace function flush_events(
  account_ids bigint[], credentials_versions bigint[], sources text[], proven boolean[],
  path_account_ids bigint[], foreign_bots text[], bot_versions bigint[],
  admissions int[], kinds text[], keys uuid[], occurred_ats timestamptz[], user_ids text[],
  group_ids text[], message_ids text[], payloads text[], failures text[], claimed_ats timestamptz[], own_acts boolean[],
  other_events int[], other_people text[], relationships text[],
  conversation_ids text[], conversation_statuses text[], conversation_ats timestamptz[],
  unsent_messages text[], account_states text[], deliveries int[], destinations text[],
  out admitted int[], out duplicates int[],
  out leased_ids bigint[], out leased_accounts bigint[], out leased_endpoints bigint[]
) language sql as $$
  select * from flush_events(
    account_ids, credentials_versions, sources, proven, path_account_ids, foreign_bots, bot_versions, admissions, kinds, keys,
    occurred_ats, user_ids, group_ids, message_ids, payloads, failures, claimed_ats, own_acts, other_events, other_people,
    relationships, conversation_ids, conversation_statuses, conversation_ats, unsent_messages, account_states,
    null, null, null, deliveries, destinations) $$;
