-- Change numbers: the order of the delta feed. They replace times, because a late commit or a clock that steps back put a
-- change before others that a client had already read. See docs/decisions/0021-change-numbers.md. And ids of deleted members
-- that are never used again.
--
-- This file can be applied twice, so that it can be applied by hand before an upgrade (docs/operations.md).

-- Ids are never used again: a client repeats a DELETE whose answer was lost, and must not erase somebody else. An id that
-- another program loaded may be ahead of the sequence, so its deletion moves the sequence past it. Other sessions take ids
-- between the two calls, and setval must not move the sequence back: hence 1,000 more. Ids above 2^62 are left alone, because
-- no sequence counts that far.
create or replace function skip_member_ids(highest bigint) returns void language plpgsql as $$
declare
  ids regclass := pg_get_serial_sequence('audience_member', 'id');
begin
  if highest > coalesce(pg_sequence_last_value(ids), 0) and highest < 4611686018427387904 then
    perform setval(ids, highest + 1000);
  end if;
end $$;

-- Ids that were deleted before. This reads all tombstones, so it comes before any lock on members.
select skip_member_ids(max(id)) from erased_member where id < 4611686018427387904;

-- The distance between change numbers and the transaction ids of this server. A dump that is restored on another server
-- brings numbers beyond that server's transaction ids. raise_change_offset then replaces this function.
create or replace function change_offset() returns bigint language sql immutable parallel safe return 0::bigint;

-- The number of what the current transaction changes. The number before it is that of inserted members, and the number after
-- it that of tombstones. So no two rows of an account share (number, id), although one transaction may delete and insert the
-- same id, and a change of a member that the same transaction inserted moves its number.
create or replace function next_change() returns bigint language sql stable
  return 3 * txid_current() + 1 + change_offset();

-- Every transaction whose numbers are below has ended, so its changes are visible or never will be.
create or replace function change_horizon() returns bigint language sql stable
  return 3 * txid_snapshot_xmin(txid_current_snapshot()) + change_offset();

-- Every transaction that has numbers has lower ones.
create or replace function change_limit() returns bigint language sql stable
  return 3 * txid_snapshot_xmax(txid_current_snapshot()) + change_offset();

-- The default is stable, so PostgreSQL computes it once and rewrites no row: all members of today share one number.
alter table audience_member add column if not exists change bigint not null default next_change() - 1;
alter table erased_member add column if not exists change bigint not null default next_change() + 1;

-- Which changes had ended at which time: a feed that begins at a time begins at the newest mark before it. The background
-- work of the service adds one every ten seconds.
create table if not exists change_mark (
  marked_at timestamptz not null,
  -- change_horizon() at that time.
  change bigint not null,
  primary key (marked_at, change)
);

-- Other programs change members with plain updates, and instances of the previous version move `updated_at` alone. The
-- triggers move `version`, `updated_at` and `change` for them. Updates that move `change` themselves, as ours do, are left
-- alone. The condition of the trigger calls no SQL function: inlining one takes 50 µs in each statement.
create or replace function record_member_edit() returns trigger language plpgsql security definer as $$
begin
  insert into member_edit (channel_oa_id, member_id, fields, api_key_id)
  values (new.channel_oa_id, new.id,
          array_remove(array[case when new.external_id is distinct from old.external_id then 'externalId' end,
                             case when new.tags is distinct from old.tags then 'tags' end,
                             case when new.attributes is distinct from old.attributes then 'attributes' end], null),
          nullif(current_setting('oa_audience.api_key_id', true), '')::bigint);
  if new.version = old.version or new.change <> next_change() then
    update audience_member
       set version = version + case when new.version = old.version then 1 else 0 end,
           change = next_change(),
           updated_at = case when new.updated_at = old.updated_at then greatest(clock_timestamp(), updated_at)
                        else updated_at end
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;

create or replace function touch_member() returns trigger language plpgsql security definer as $$
begin
  -- Equal, if this transaction has changed the member before.
  if new.change <> next_change() then
    update audience_member
       set change = next_change(),
           updated_at = case when new.updated_at = old.updated_at then greatest(clock_timestamp(), updated_at)
                        else updated_at end
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;
create or replace trigger audience_member_touched
  after update of display_name, picture_url, language, relationship, conversation_status, updated_at on audience_member
  for each row when (old.change = new.change
                     and (old.display_name, old.picture_url, old.language, old.relationship, old.conversation_status,
                          old.updated_at)
                         is distinct from
                         (new.display_name, new.picture_url, new.language, new.relationship, new.conversation_status,
                          new.updated_at))
  execute function touch_member();

create or replace function record_deletions() returns trigger language plpgsql security definer as $$
begin
  insert into erased_member (channel_oa_id, organization_id, id)
  select channel_oa_id, organization_id, id from deleted
      on conflict (channel_oa_id, id) do update set deleted_at = excluded.deleted_at, change = excluded.change;
  perform skip_member_ids(max(id)) from deleted where id < 4611686018427387904;
  return null;
end $$;
-- Replacing a function resets its settings: see the end of 0002.
do $$
declare
  name text;
begin
  foreach name in array array['record_member_edit()', 'touch_member()', 'record_deletions()'] loop
    execute format('alter function %s set search_path = %I, pg_temp', name, current_schema());
  end loop;
end $$;
