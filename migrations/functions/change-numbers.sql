-- Keeps change numbers growing on a server to which a dump was restored. A repeatable file: see CONTRIBUTING.md.

-- Raises change_offset if stored numbers are beyond those of this server's transactions, and so come from another server. Returns
-- whether it did. The service calls it when it migrates, and when a connection reaches another server than that of change_server.
--
-- Stored numbers are in change_mark, members, tombstones and endpoints. Those of endpoint_delivery and created_change are not above
-- them, and open_changes are below first_change. Numbers above 2^62 are ignored, because another program invented them.
create or replace function raise_change_offset() returns boolean language plpgsql as $$
declare
  newest bigint;
begin
  -- Concurrent replacements of a function fail.
  perform pg_advisory_xact_lock(7301006);
  insert into change_server (system_identifier) select system_identifier from pg_control_system()
      on conflict (is_only_row) do update set system_identifier = excluded.system_identifier
   where change_server.system_identifier <> excluded.system_identifier;
  select max(change) into newest
    from (select max(change) as change from change_mark where change < 4611686018427387904
           union all
          select max(greatest(change_position, first_change)) from endpoint
           where greatest(change_position, first_change) < 4611686018427387904
           union all
          select (select change from audience_member
                   where channel_oa_id = a.id and change < 4611686018427387904 order by change desc limit 1)
            from official_account a
           union all
          select (select change from erased_member
                   where channel_oa_id = a.id and change < 4611686018427387904 order by change desc limit 1)
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

-- Raises change_offset beyond every number that a lost server can have assigned since a backup, because clients and endpoints may have
-- read these numbers. `lost_from` is the limit of the numbers in the backup. A physical copy continues with the transaction ids of the backup.
-- PostgreSQL assigns fewer than a million transaction ids per second. A day is added, because the clocks of the two servers may differ.
create or replace function skip_lost_changes(lost_since timestamptz, lost_from bigint) returns void language plpgsql as $$
declare
  ids_per_second constant bigint := 1000000;
  margin_seconds constant bigint := 86400;
  seconds bigint := margin_seconds + greatest(0, extract(epoch from clock_timestamp() - lost_since)::bigint);
  newest bigint;
begin
  -- Also locks out concurrent replacements until the end of the transaction.
  perform raise_change_offset();
  newest := greatest(lost_from, change_limit()) + 3 * ids_per_second * seconds;
  execute format('create or replace function change_offset() returns bigint language sql immutable parallel safe
                  return %s::bigint',
                 newest + 3 - newest % 3 - 3 * txid_snapshot_xmin(txid_current_snapshot()));
end $$;
