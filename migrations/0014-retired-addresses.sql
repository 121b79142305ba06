-- Web pages and support chats use a tracking key or an oa_hash long after it was replaced, or its account was removed. Whoever took
-- the value would receive their visitors and chats.

-- Values that an account had. Only the organization of that account may use them again. A removed organization stays in this table.
create table retired_address (
  -- the column of official_account
  kind text not null check (kind in ('tracking_key', 'oa_hash')),
  -- A replaced value may still be in use where nobody changed it, so it is not stored.
  value_hash bytea not null,
  organization_id bigint not null,
  primary key (kind, value_hash)
);

-- After the row is in the unique indexes: an insert waits there for a transaction that replaces the same value, and then sees what it
-- has stored here.
create function retire_addresses() returns trigger language plpgsql as $$
declare address record;
begin
  for address in
    select kind, sha256(convert_to(old_value, 'UTF8')) as old_hash, sha256(convert_to(value, 'UTF8')) as hash
      from (values ('tracking_key', old.tracking_key, new.tracking_key), ('oa_hash', old.oa_hash, new.oa_hash))
             as changed (kind, old_value, value)
     where old_value is distinct from value
  loop
    if address.old_hash is not null then
      insert into retired_address as r (kind, value_hash, organization_id)
      values (address.kind, address.old_hash, old.organization_id)
          on conflict (kind, value_hash) do update set organization_id = excluded.organization_id;
    end if;
    if exists (select from retired_address r
                where r.kind = address.kind and r.value_hash = address.hash and r.organization_id <> new.organization_id) then
      raise unique_violation using message = 'another organization has had this ' || address.kind,
        table = 'official_account', constraint = 'official_account_' || address.kind || '_retired';
    end if;
  end loop;
  return null;
end $$;
create trigger official_account_addresses_retired after insert or delete or update of tracking_key, oa_hash on official_account
  for each row execute function retire_addresses();
