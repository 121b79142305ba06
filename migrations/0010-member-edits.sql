-- What an edit of a member changed, from what to what, and who made it.

-- Both columns are null in rows of earlier versions.
--
-- externalId: [before, after]. tags: {"added": […], "removed": […]}, in the order of the array. attributes: [before, after] for each
-- changed name, null if it is absent. Null: too large, and `fields` says what changed. The values are personal. They are deleted with
-- the member, and with the row after RETENTION_DAYS.
alter table member_edit add column changes jsonb;
-- An operator's address, `token`, or `user@host` of a command. Null: the client of api_key_id, or another program.
alter table member_edit add column actor text;

-- Loops instead of queries: starting a query costs 10 µs, and most edits have few tags.
create function tag_changes(before text[], after text[]) returns jsonb language plpgsql immutable parallel safe as $$
declare
  tag text;
  added text[] := '{}';
  removed text[] := '{}';
begin
  foreach tag in array after loop
    if array_position(before, tag) is null then added := added || tag; end if;
  end loop;
  foreach tag in array before loop
    if array_position(after, tag) is null then removed := removed || tag; end if;
  end loop;
  return jsonb_build_object('added', to_jsonb(added), 'removed', to_jsonb(removed));
end $$;

create function attribute_changes(before jsonb, after jsonb) returns jsonb language sql immutable parallel safe
  return (select coalesce(jsonb_object_agg(coalesce(b.key, a.key), jsonb_build_array(b.value, a.value)), '{}')
            from jsonb_each(before) b full join jsonb_each(after) a on b.key = a.key
           where b.value is distinct from a.value);

-- Null if the values are too large to keep, or if another program wrote them in a form that the API does not accept. 200 tags: 100
-- before and 100 after, the maximum of the API. 4 KiB: an edit that needs more replaces most of what clients set. 64 KiB: another
-- program may write values so large that comparing them would slow down or fail its update.
create function member_changes(before audience_member, after audience_member) returns jsonb language plpgsql immutable as $$
declare
  changes jsonb := '{}';
begin
  if pg_column_size(before.tags) + pg_column_size(after.tags) + pg_column_size(before.attributes)
     + pg_column_size(after.attributes) > 65536 then return null; end if;
  if after.external_id is distinct from before.external_id then
    changes := jsonb_build_object('externalId', jsonb_build_array(before.external_id, after.external_id));
  end if;
  if after.tags is distinct from before.tags then
    if cardinality(before.tags) + cardinality(after.tags) > 200
       or greatest(array_ndims(before.tags), array_ndims(after.tags)) > 1 then return null; end if;
    changes := changes || jsonb_build_object('tags', tag_changes(before.tags, after.tags));
  end if;
  if after.attributes is distinct from before.attributes then
    if jsonb_typeof(before.attributes) <> 'object' or jsonb_typeof(after.attributes) <> 'object' then return null; end if;
    changes := changes || jsonb_build_object('attributes', attribute_changes(before.attributes, after.attributes));
  end if;
  return case when octet_length(changes::text) <= 4096 then changes end;
end $$;

create or replace function record_member_edit() returns trigger language plpgsql security definer as $$
begin
  insert into member_edit (channel_oa_id, member_id, fields, changes, api_key_id, actor)
  values (new.channel_oa_id, new.id,
          array_remove(array[case when new.external_id is distinct from old.external_id then 'externalId' end,
                             case when new.tags is distinct from old.tags then 'tags' end,
                             case when new.attributes is distinct from old.attributes then 'attributes' end], null),
          member_changes(old, new),
          nullif(current_setting('oa_audience.api_key_id', true), '')::bigint,
          nullif(current_setting('oa_audience.actor', true), ''));
  -- The version after the greatest number, which another program may have loaded, is 1.
  if new.version = old.version or new.change <> next_change() then
    update audience_member
       set version = case when new.version = old.version then version % 9223372036854775807 + 1 else version end,
           change = next_change(),
           updated_at = case when new.updated_at = old.updated_at then greatest(clock_timestamp(), updated_at)
                        else updated_at end
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;

-- Replacing a function resets its settings. A function with its owner's rights must not resolve table names through a caller's
-- temporary tables.
do $$
begin
  execute format('alter function record_member_edit() set search_path = %I, pg_temp', current_schema());
end $$;
