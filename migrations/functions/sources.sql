-- Where a member came from. A repeatable file: see CONTRIBUTING.md.
--
--   touch   a proven event that names a source or a campaign
--   follow  the earliest follow of the person that is known
--
-- The source of a member is the newest touch from 24 hours before the follow up to the follow; if there is none, the oldest touch up to one
-- hour after it. Touches of the same time are ordered by their keys. So the source is a function of two sets, the touches and the follows:
-- their order, duplicates and the flushing instance do not matter.

-- The touch that decides for a follow. The stored source takes part as a touch, because its own row may have ended with its retention.
create or replace function deciding_touch(account_id bigint, person text, follow timestamptz)
  returns table (source text, medium text, campaign text, occurred_at timestamptz, key uuid) language plpgsql stable as $$
begin
  return query
  select t.* from (
    select k.source, k.medium, k.campaign, k.occurred_at, k.key from member_touch k
     where k.channel_oa_id = account_id and k.user_id = person
     union all
   (select m.source, m.medium, m.campaign, m.source_at, m.source_key from audience_member m
     where m.channel_oa_id = account_id and m.user_id between person and person order by m.user_id limit 1)) t
   where t.occurred_at between follow - interval '24 hours' and follow + interval '1 hour'
   order by t.occurred_at <= follow desc,
            case when t.occurred_at <= follow then t.occurred_at end desc, case when t.occurred_at <= follow then t.key end desc,
            t.occurred_at, t.key
   limit 1;
end $$;

-- Keeps the oldest 50 touches of a person and day (UTC): anybody can repeat touches of their own. The oldest, so that the rows that are kept
-- are a function of the set, too.
create or replace function drop_excess_touches(account_id bigint, person text, day date) returns void language plpgsql as $$
begin
  delete from member_touch
   where (channel_oa_id, user_id, occurred_at, key) in (
     select channel_oa_id, user_id, occurred_at, key from member_touch
      where channel_oa_id = account_id and user_id = person
        and occurred_at >= day::timestamp at time zone 'UTC' and occurred_at < (day + 1)::timestamp at time zone 'UTC'
      order by occurred_at, key offset 50);
end $$;

-- Stores the touches of a batch, and decides again for each person with a touch or a follow. The members exist and are locked. It runs before
-- apply_relationships, because followed_at is the earliest follow that is known of a member from before first_followed_at.
create or replace function apply_sources(
  effective bigint[], keys uuid[], occurred_ats timestamptz[], user_ids text[], relationships text[],
  touch_sources text[], touch_mediums text[], touch_campaigns text[]
) returns void language plpgsql as $$
declare
  changed_at constant timestamptz := clock_timestamp();
begin
  if touch_sources is not null or touch_campaigns is not null then
    -- An earlier follow only makes the end of the time earlier, so a later touch never decides.
    insert into member_touch (channel_oa_id, user_id, occurred_at, key, source, medium, campaign)
    select e.account_id, e.user_id, e.occurred_at, e.key, e.source, e.medium, e.campaign
      from unnest(effective, keys, occurred_ats, user_ids, touch_sources, touch_mediums, touch_campaigns)
           as e (account_id, key, occurred_at, user_id, source, medium, campaign)
     cross join lateral (select coalesce(first_followed_at, followed_at) as follow from audience_member
                          where channel_oa_id = e.account_id and user_id between e.user_id and e.user_id
                          order by audience_member.user_id limit 1) m
     where (e.source is not null or e.campaign is not null)
       and e.occurred_at <= coalesce(m.follow + interval '1 hour', 'infinity')
     order by e.account_id, e.user_id, e.occurred_at, e.key
        on conflict do nothing;
    perform drop_excess_touches(account_id, user_id, day)
       from (select distinct account_id, user_id, (occurred_at at time zone 'UTC')::date as day
               from unnest(effective, occurred_ats, user_ids, touch_sources, touch_campaigns)
                    as e (account_id, occurred_at, user_id, source, campaign)
              where account_id is not null and (source is not null or campaign is not null)) touched;
  end if;

  insert into audience_member as m (channel_oa_id, organization_id, user_id, first_followed_at,
                                    source, medium, campaign, source_at, source_key)
  select p.account_id, p.organization_id, p.user_id, p.follow, t.source, t.medium, t.campaign, t.occurred_at, t.key
    from (select e.account_id, e.user_id, max(stored.organization_id) as organization_id,
                 least(min(stored.follow), min(e.occurred_at) filter (where e.relationship = 'following')) as follow
            from unnest(effective, occurred_ats, user_ids, relationships, touch_sources, touch_campaigns)
                 as e (account_id, occurred_at, user_id, relationship, source, campaign)
           cross join lateral (select organization_id, coalesce(first_followed_at, followed_at) as follow from audience_member
                                where channel_oa_id = e.account_id and user_id between e.user_id and e.user_id
                                order by audience_member.user_id limit 1) stored
           where e.relationship = 'following' or e.source is not null or e.campaign is not null
           group by e.account_id, e.user_id) p
    left join lateral deciding_touch(p.account_id, p.user_id, p.follow) t on true
   where p.follow is not null
   order by p.account_id, p.user_id
      on conflict on constraint audience_member_user do update set
         first_followed_at = excluded.first_followed_at,
         source = excluded.source, medium = excluded.medium, campaign = excluded.campaign,
         source_at = excluded.source_at, source_key = excluded.source_key,
         updated_at = case when excluded.source_key is distinct from m.source_key
                      then greatest(changed_at, m.updated_at) else m.updated_at end,
         change = case when excluded.source_key is distinct from m.source_key then next_change() else m.change end
   where (m.first_followed_at, m.source_key) is distinct from (excluded.first_followed_at, excluded.source_key);
end $$;
