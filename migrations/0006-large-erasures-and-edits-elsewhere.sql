-- People with more stored events than one short transaction can scrub: what is left of their erasure. The row goes with the last
-- of them.
create table erasure_rest (
  channel_oa_id bigint not null,
  organization_id bigint not null,
  member_id bigint not null,
  user_id text not null,
  -- events with greater ids came after the erasure: they are of who has come back
  last_event_id bigint not null,
  primary key (channel_oa_id, member_id)
);

-- Other programs change members with plain updates: they move version and updated_at, too, so that If-Match protects their edits
-- and a delta feed tells them. Here and not before the update, because a trigger before it would cost every event a lock.
create or replace function keep_member_edit() returns trigger language plpgsql
  security definer set search_path from current as $$
begin
  insert into member_edit (channel_oa_id, member_id, fields, api_key_id)
  values (new.channel_oa_id, new.id,
          array_remove(array[case when new.external_id is distinct from old.external_id then 'externalId' end,
                             case when new.tags is distinct from old.tags then 'tags' end,
                             case when new.attributes is distinct from old.attributes then 'attributes' end], null),
          nullif(current_setting('oa_audience.api_key_id', true), '')::bigint);
  if new.version = old.version then
    update audience_member
       set version = version + 1, updated_at = greatest(clock_timestamp(), updated_at)
     where channel_oa_id = new.channel_oa_id and id = new.id;
  end if;
  return null;
end $$;
