-- The locks of accounts. A repeatable file: see CONTRIBUTING.md.
--
-- All advisory locks: 7301 to 7304 with account_lock() are below. 7301005 serializes raise_ids() of restores.sql, and 7301006
-- raise_change_offset() of change-numbers.sql. src/postgres/locks.ts has the others.

-- The second number of the locks of an account.
create or replace function account_lock(account_id bigint) returns int language sql immutable parallel safe
  return (account_id % 2147483647)::int;

-- Excludes flushes of an account during an erasure. An erasure takes the account's lock exclusively before it searches events. A
-- flush takes the locks of its accounts shared. So a flush either commits first, and the erasure finds its events, or starts after
-- the erasure and sees it.
--
-- Every transaction takes its locks in one order: accounts, event keys, members, tracked activity, each in key order. Accounts with
-- the same number share a lock, which only causes unnecessary waits.
create or replace function lock_out_flushes(account_id bigint) returns void language sql
  return pg_advisory_xact_lock(7301, account_lock(account_id));

-- `exclusive` has the accounts for which the caller itself erases content (an unsend).
create or replace function lock_out_erasures(account_ids bigint[], exclusive bigint[]) returns void language plpgsql as $$
begin
  perform case when account_id = any (exclusive)
          then pg_advisory_xact_lock(7301, account_lock(account_id))
          else pg_advisory_xact_lock_shared(7301, account_lock(account_id)) end
     from (select distinct account_id from unnest(account_ids) as account_id order by account_id) sorted;
end $$;

-- Excludes the writing of bodies to endpoints during an erasure (decision 46). A sender holds the account's lock 7302 shared from
-- before it reads a content until the body is in the kernel's buffers, at most WRITE_MAX_MS of src/endpoints/post.ts. The locks belong
-- to its session, because bodies are written after the transaction that reads them.
--
-- An erasure takes 7304 and then 7302 exclusively, so it waits for bodies that may contain the person. While it waits, 7304 lets no
-- further delivery begin: a session that has 7302 would get it again without queueing. Timeout of 4 s: 1 s for the last write, and
-- 0.6 s for which a statement before the release may wait for rows, doubled for a busy machine. Only a frozen process holds it longer.
create or replace function lock_out_sending(account_id bigint) returns void language plpgsql set lock_timeout = '4s' as $$
declare
  account constant int := account_lock(account_id);
begin
  -- One erasure at a time waits for senders, and pauses if it had to wait for another erasure. Senders only try the lock every
  -- 10 ms, so without the pause a queue of erasures would block them.
  if not pg_try_advisory_xact_lock(7303, account) then
    perform pg_advisory_xact_lock(7303, account);
    perform pg_sleep(0.03);
  end if;
  perform pg_advisory_xact_lock(7304, account);
  perform pg_advisory_xact_lock(7302, account);
end $$;

-- Whether no body of the account is being sent.
create or replace function is_sending_quiet(account_id bigint) returns boolean language sql
  return pg_try_advisory_xact_lock(7302, account_lock(account_id));

-- Takes a lock for each delivery of these accounts. False: an erasure has the lock or waits for it. In plpgsql, because the plans of
-- functions in sql are made again in each call.
create or replace function begin_sending(account_ids bigint[]) returns boolean[] language plpgsql as $$
begin
  return array(select case when pg_try_advisory_lock_shared(7304, account_lock(account_id))
                      then pg_advisory_unlock_shared(7304, account_lock(account_id))
                           and pg_try_advisory_lock_shared(7302, account_lock(account_id))
                      else false end
                 from unnest(account_ids) as account_id);
end $$;

create or replace function release_sending(account_ids bigint[]) returns bigint language plpgsql as $$
begin
  return (select count(pg_advisory_unlock_shared(7302, account_lock(account_id)))
            from unnest(account_ids) as account_id);
end $$;
