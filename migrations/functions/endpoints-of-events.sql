-- Which endpoints receive an event, and which of them may reply. The flush, replays, previews and pages call these functions, so an
-- endpoint receives the same by all ways. A repeatable file: see CONTRIBUTING.md.

-- Whether an endpoint receives events of a kind, by its `events`.
create or replace function receives_kind(events text[], kind text) returns boolean language sql immutable parallel safe
  return events is null or kind = any (events);

-- The `line` endpoints that receive events. Event n consists of the nth element of each array; an event without an account is skipped.
-- Conditions hold for people as the members are now: a person who is not a member never matches, and an event without a person goes to
-- all. `only_endpoint`: null for all endpoints; otherwise only this one is examined, and `may_reply` ignores the others.
--
-- A person is read once, and each condition is evaluated once per person: an account may have 20 conditions of up to 50 µs each.
create or replace function endpoints_of(account_ids bigint[], kinds text[], user_ids text[], only_endpoint bigint default null)
  returns table (event int, endpoint_id bigint, status text, is_conditional boolean, may_reply boolean)
  language plpgsql stable as $$
begin
  return query
  with sent as materialized (
    select e.position::int, e.account_id, e.kind, e.user_id
      from unnest(account_ids, kinds, user_ids) with ordinality as e (account_id, kind, user_id, position)
     where e.account_id is not null
  ), candidate as materialized (
    select p.* from (select distinct account_id from sent) a
     cross join lateral (select * from endpoint where channel_oa_id = a.account_id offset 0) p
     where p.format = 'line' and (only_endpoint is null or p.id = only_endpoint)
  ), matched as materialized (
    select s.position, s.account_id, s.user_id, p.id, p.status, p.condition, p.replies, p.priority
      from sent s join candidate p on p.channel_oa_id = s.account_id and receives_kind(p.events, s.kind)
  ), person as materialized (
    select r.account_id, r.user_id, bool_or(needs_activity(r.condition)) as needs_activity
      from matched r
     where r.condition is not null and r.user_id is not null
     group by r.account_id, r.user_id
  ), held as materialized (
    select m.user_id, p.id
      from person h
      join lateral (select * from audience_member where channel_oa_id = h.account_id and user_id between h.user_id and h.user_id
                     order by user_id limit 1) m on true
      left join lateral (select t.event_count, t.last_seen_at from tracked_activity t
                          where h.needs_activity and t.channel_oa_id = h.account_id and t.user_id = h.user_id offset 0) tracked on true
      join candidate p on p.channel_oa_id = h.account_id and p.condition is not null
     where matches_condition(m.tags, m.relationship, m.language, m.attributes, m.external_id, m.conversation_id,
                             m.conversation_status, m.followed_at, greatest(m.last_seen_at, tracked.last_seen_at),
                             m.event_count::numeric + coalesce(tracked.event_count, 0), m.source, m.campaign, p.condition, now())
  )
  select r.position, r.id, r.status, r.condition is not null,
         r.replies and row_number() over (partition by r.position, r.replies order by r.priority, r.id) = 1
    from matched r
   where r.condition is null or r.user_id is null or (r.id, r.user_id) in (select h.id, h.user_id from held h);
end $$;
