-- Where followers come from (docs/sources.md).

-- The proven events of a person that say where the person came from, as far as they may still decide a member's source: functions/sources.sql.
-- No foreign key of members: it would cost each update of a member a comparison of keys. erase_people() deletes a person's touches.
create table member_touch (
  channel_oa_id bigint not null references official_account (id) on delete cascade,
  user_id text not null,
  occurred_at timestamptz not null,
  -- Of the event.
  key uuid not null,
  source text,
  medium text,
  campaign text,
  received_at timestamptz not null default now(),
  primary key (channel_oa_id, user_id, occurred_at, key),
  check (source is not null or campaign is not null)
);
-- Retention reads by it.
create index member_touch_received on member_touch (received_at);
select revoke_default_privileges(array['member_touch'::regclass]);

-- The touch that decides, and the earliest follow that is known. Null in a member without a follow since the upgrade: followed_at counts then.
alter table audience_member
  add column source text,
  add column medium text,
  add column campaign text,
  add column source_at timestamptz,
  add column source_key uuid,
  add column first_followed_at timestamptz;

-- On a large table, create it by hand with `create index concurrently` before the upgrade.
create index if not exists audience_member_source on audience_member (channel_oa_id, source, id) where source is not null;

-- With sourceAny and campaignAny.
create or replace function is_condition(condition jsonb) returns boolean language plpgsql stable as $$
begin
  perform condition_time(condition->>bound, now())
     from unnest(array['followedAfter', 'followedBefore', 'lastSeenAfter', 'lastSeenBefore']) as bound
    where condition ? bound;
  perform (condition->'hasExternalId')::boolean, (condition->'eventCountMin')::numeric, (condition->'eventCountMax')::numeric;
  return jsonb_typeof(condition) = 'object' and condition - array[
    'tagsAll', 'tagsAny', 'tagsNone', 'relationship', 'language', 'attributes', 'hasExternalId', 'conversationStatus', 'sourceAny', 'campaignAny',
    'followedAfter', 'followedBefore', 'lastSeenAfter', 'lastSeenBefore', 'eventCountMin', 'eventCountMax'] = '{}';
exception when others then
  return false;
end $$;
do $$ begin
  execute format('alter function is_condition(jsonb) set search_path = %I, pg_temp', current_schema());
end $$;
