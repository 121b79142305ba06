-- What other programs write of a member, above all the columns that are named to them, is told by a delta feed and found by its
-- tags, with rights on audience_member alone: so these functions have their owner's.

-- Updates that move updated_at themselves, as all of ours do, are left as they are. `version` is of clients' fields.
create or replace function keep_member_edit() returns trigger language plpgsql security definer as $$
begin
  insert into member_edit (channel_oa_id, member_id, fields, api_key_id)
  values (new.channel_oa_id, new.id,
          array_remove(array[case when new.external_id is distinct from old.external_id then 'externalId' end,
                             case when new.tags is distinct from old.tags then 'tags' end,
                             case when new.attributes is distinct from old.attributes then 'attributes' end], null),
          nullif(current_setting('oa_audience.api_key_id', true), '')::bigint);
  if new.version = old.version or new.updated_at = old.updated_at then
    update audience_member
       set version = version + case when new.version = old.version then 1 else 0 end,
           updated_at = greatest(clock_timestamp(), updated_at)
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;

create function touch_member() returns trigger language plpgsql security definer as $$
begin
  update audience_member set updated_at = greatest(clock_timestamp(), updated_at)
   where channel_oa_id = new.channel_oa_id and id = new.id;
  return null;
end $$;
create trigger audience_member_touched
  after update of display_name, picture_url, language, relationship, conversation_status on audience_member
  for each row when (old.updated_at = new.updated_at
                     and (old.display_name, old.picture_url, old.language, old.relationship, old.conversation_status)
                         is distinct from
                         (new.display_name, new.picture_url, new.language, new.relationship, new.conversation_status))
  execute function touch_member();

-- Of all who are deleted, by our erasure or by another program, the ids stay, so that a delta feed can tell.
create function tell_deletions() returns trigger language plpgsql security definer as $$
begin
  insert into erased_member (channel_oa_id, organization_id, id)
  select channel_oa_id, organization_id, id from gone
      on conflict (channel_oa_id, id) do update set deleted_at = excluded.deleted_at;
  return null;
end $$;
create trigger audience_member_deleted after delete on audience_member
  referencing old table as gone for each statement execute function tell_deletions();

-- Longer tags than the API takes are found by nobody, and would not fit into the index.
create or replace function keep_audience_tags() returns trigger language plpgsql security definer as $$
begin
  if tg_op <> 'INSERT' then
    delete from audience_tag
     where channel_oa_id = old.channel_oa_id and tag = any (old.tags) and member_id = old.id;
  end if;
  if tg_op <> 'DELETE' then
    insert into audience_tag (channel_oa_id, tag, member_id)
    select distinct new.channel_oa_id, tag, new.id from unnest(new.tags) as tag where length(tag) <= 64;
  end if;
  return null;
end $$;
create or replace trigger audience_member_tags_changed after update of tags, id, channel_oa_id on audience_member
  for each row when ((old.tags, old.id, old.channel_oa_id) is distinct from (new.tags, new.id, new.channel_oa_id))
  execute function keep_audience_tags();

-- Whoever calls them cannot put tables of their own, temporary ones before all, in the place of ours.
do $$
declare
  name text;
begin
  foreach name in array array['keep_member_edit()', 'touch_member()', 'tell_deletions()', 'keep_audience_tags()'] loop
    execute format('alter function %s set search_path = %I, pg_temp', name, current_schema());
  end loop;
end $$;
