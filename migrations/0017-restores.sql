-- What a restored backup must not repeat: ids of members, and change numbers. See docs/decisions/0043-ids-after-a-restore.md
-- and migrations/functions/restores.sql.

-- The server whose transaction ids the change numbers follow: see raise_change_offset(). A dump brings this row to another
-- server, which has another identifier. A physical copy has the same identifier, and the same transaction ids.
create table change_server (
  is_only_row boolean primary key default true check (is_only_row),
  system_identifier bigint not null
);

-- As in 0005, but the version after the greatest number, which another program may have loaded, is 1.
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
       set version = case when new.version = old.version then version % 9223372036854775807 + 1 else version end,
           change = next_change(),
           updated_at = case when new.updated_at = old.updated_at then greatest(clock_timestamp(), updated_at)
                        else updated_at end
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;
-- Replacing a function resets its settings: see the end of 0002.
do $$ begin
  execute format('alter function record_member_edit() set search_path = %I, pg_temp', current_schema());
end $$;
