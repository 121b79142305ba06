-- Keeps change numbers growing on a server to which a dump was restored. A repeatable file: see CONTRIBUTING.md.

-- Raises change_offset if stored numbers are beyond those of this server's transactions. Returns whether it did. The service
-- calls it when it migrates. No transaction of this server has such numbers, so they come from another one.
create or replace function raise_change_offset() returns boolean language plpgsql as $$
declare
  newest bigint;
begin
  select max(change) into newest
    from (select max(change) as change from change_mark
           union all
          select (select change from audience_member where channel_oa_id = a.id order by change desc limit 1)
            from official_account a
           union all
          select (select change from erased_member where channel_oa_id = a.id order by change desc limit 1)
            from official_account a) stored;
  if newest is null or newest < change_limit() then
    return false;
  end if;
  -- A multiple of three, so that inserted, changed and deleted members keep their kinds of numbers.
  execute format('create or replace function change_offset() returns bigint language sql immutable parallel safe
                  return %s::bigint',
                 newest + 3 - newest % 3 - 3 * txid_snapshot_xmin(txid_current_snapshot()));
  return true;
end $$;
