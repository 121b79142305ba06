-- Prevents that ids of members and accounts are reused, also after a restore, and those of members after a failover that lost commits.
-- Detects a server to which a dump was restored. A repeatable file: see CONTRIBUTING.md and docs/decisions/0043-ids-after-a-restore.md.

-- Moves the generated ids of a table beyond `highest` (which may be null) and makes them follow time. Each id is at least
--
--   2^52 × a number of skips  +  microseconds since 2026, by the server's clock
--
-- Earlier ids are below that, as long as fewer than a million are generated per second. So a server that lost the last commits or
-- days generates other ids, even if the loss is not noticed. 2^52 microseconds are 142 years, and ids are below 2^53 until the second
-- skip. A skip follows an id that another program loaded far ahead of time, or a clock that was far ahead, because time would need
-- years to catch up. Ids above 2^62 are ignored.
create or replace function raise_ids(ids regclass, highest bigint) returns void language plpgsql as $$
declare
  -- Serializes sessions that move the sequence. Any fixed number.
  lock constant bigint := 7301005;
  skip constant bigint := 4503599627370496;
  minute_us constant bigint := 60000000;
  now_us bigint;
  last bigint;
  newest bigint;
  target bigint;
begin
  -- Held only during this function, because a transaction that deletes a member may wait for a standby before it commits.
  perform pg_advisory_lock(lock);
  now_us := greatest(0, (extract(epoch from clock_timestamp() - timestamptz '2026-01-01T00:00:00Z') * 1000000)::bigint);
  last := coalesce(pg_sequence_last_value(ids), 0);
  newest := greatest(last, highest, 0);
  target := newest - newest % skip + case when newest % skip <= now_us then now_us
                                          when newest % skip > now_us + minute_us then skip + now_us
                                          else newest % skip end;
  -- Other sessions generate ids at the same time, and setval must not move the sequence back: 10,000 ids take 0.2 s.
  if target > last and newest < 4611686018427387904 and now_us < skip - minute_us then
    perform setval(ids, greatest(target, pg_sequence_last_value(ids) + 10000));
  end if;
  perform pg_advisory_unlock(lock);
exception when others or query_canceled then
  perform pg_advisory_unlock(lock);
  raise;
end $$;

create or replace function raise_member_ids(highest bigint) returns void language plpgsql as $$
begin
  perform raise_ids(pg_get_serial_sequence('audience_member', 'id'), highest);
end $$;

-- Operators type ids of accounts, so they are small until a restore may have lost some.
create or replace function raise_account_ids(highest bigint) returns void language plpgsql as $$
begin
  perform raise_ids(pg_get_serial_sequence('official_account', 'id'), highest);
end $$;

-- Moves generated ids beyond an id that another program loaded.
create or replace function skip_member_ids(highest bigint) returns void language plpgsql as $$
begin
  if highest > coalesce(pg_sequence_last_value(pg_get_serial_sequence('audience_member', 'id')), 0)
     and highest < 4611686018427387904 then
    perform raise_member_ids(highest);
  end if;
end $$;

-- Runs on each connection of the service before its first statement, and every ten seconds. Connections from before a restore do not
-- reach the restored database, so nothing is written to it before this.
create or replace function prepare_writes() returns void language plpgsql as $$
declare
  is_new boolean;
begin
  if current_setting('transaction_read_only') = 'on' then
    return;
  end if;
  -- This commit need not wait for a disk or a standby. The commit of a member with such an id does, and is later in the log.
  set local synchronous_commit = off;
  perform raise_member_ids(null);
  if not exists (select from change_server
                  where system_identifier = (select system_identifier from pg_control_system())) then
    is_new := not exists (select from change_server);
    perform raise_change_offset();
    if not is_new then
      perform raise_account_ids(null);
    end if;
  end if;
end $$;

-- Records that a backup was restored. Call it before any service uses the database. Changes since `lost_since` may be lost,
-- and `lost_from` is the limit of the change numbers in the backup. Returns the time of the restore.
--
-- Delta feeds refuse times between the two (src/audience/feed-statement.ts). A client that begins again may continue with the newest
-- time in its copy, so no time of a member may remain in that range.
--
-- Sessions and invitations that ended since the backup would be valid again, so all of them end.
create or replace function record_restore(lost_since timestamptz, lost_from bigint) returns timestamptz language plpgsql as $$
declare
  -- Clients read times in milliseconds.
  restored constant timestamptz := date_trunc('milliseconds', clock_timestamp());
begin
  perform skip_lost_changes(lost_since, lost_from);
  perform raise_account_ids(null);
  insert into database_restore (backup_at, restored_at) values (lost_since, restored);
  insert into pending_reapply default values on conflict do nothing;
  delete from operator_session;
  update operator set invitation_hash = null, invitation_expires_at = null where invitation_hash is not null;
  update audience_member set updated_at = restored, change = next_change()
   where updated_at >= lost_since - interval '60 seconds';
  update erased_member set deleted_at = restored, change = next_change() + 1
   where deleted_at >= lost_since - interval '60 seconds';
  return restored;
end $$;
