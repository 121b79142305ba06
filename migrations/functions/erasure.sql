-- What an erasure deletes of people, and what remains. test/audience/erasure-columns.test.ts compares it with every column of the schema. A
-- repeatable file: see CONTRIBUTING.md.

-- Removes the content of people's stored events, up to `last_event_id`. Later events belong to people who have come back. An event
-- remains, so that counts stay right. A tracking event is useless without its person, so it is deleted, and its key remains in event_key.
--
-- Changes at most `event_max` rows per statement and person, because flushes of the account wait: 20,000 take about 0.1 s. Null: no
-- limit. Returns false if rows may be left.
--
-- Rows are updated by ctid. A ctid is only unique within one partition, so the owner is checked again. `+ 0` and `coalesce` prevent the use
-- of indexes for that check, which would compare all events of the person with every ctid. The rows are locked when they are found, because
-- an update of a row that was moved since would search all ctids again. A row that another erasure moves meanwhile is found, not changed.
create or replace function scrub_events(account_id bigint, user_ids text[], last_event_id bigint, event_max int) returns boolean
  language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  person text;
  own int[];
  others int[];
  tracking int[];
  is_complete boolean := true;
begin
  foreach person in array user_ids loop
    with found as materialized (
      select ctid as place from event
       where channel_oa_id = account_id and user_id = person and id + 0 <= last_event_id limit event_max for update
    ), scrubbed as (
      update event set user_id = null, group_id = null, message_id = null, payload = null
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = account_id and coalesce(user_id, '') = person and id + 0 <= last_event_id
      returning 1
    )
    select array[(select count(*) from found), (select count(*) from scrubbed)] into own;

    with found as materialized (
      select ctid as place from event
       where channel_oa_id = account_id and other_user_ids @> array[person] and id + 0 <= last_event_id limit event_max for update
    ), scrubbed as (
      update event set other_user_ids = array_remove(other_user_ids, person), payload = null
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = account_id and coalesce(other_user_ids, '{}') @> array[person] and id + 0 <= last_event_id
      returning 1
    )
    select array[(select count(*) from found), (select count(*) from scrubbed)] into others;

    with found as materialized (
      select ctid as place from tracking_event
       where channel_oa_id = account_id and user_id = person and id + 0 <= last_event_id limit event_max for update
    ), deleted as (
      delete from tracking_event
       where ctid = any (array(select place from found))
         and channel_oa_id + 0 = account_id and coalesce(user_id, '') = person and id + 0 <= last_event_id
      returning 1
    )
    select array[(select count(*) from found), (select count(*) from deleted)] into tracking;

    is_complete := is_complete
      and own[1] = own[2] and others[1] = others[2] and tracking[1] = tracking[2]
      and greatest(own[1], others[1], tracking[1]) < coalesce(event_max, 2147483647);
  end loop;
  return is_complete;
end $$;

-- Erases people of an account, members or not. The caller has stored their hashes, and holds lock_out_sending() and lock_out_flushes().
-- If `is_complete` is false, it calls scrub_events() until that returns true, but not this function: a person may have come back.
--
-- A generic plan, because PostgreSQL may use any partial index for an empty array, and read all its members.
create or replace function erase_people(
  account_id bigint, user_ids text[], last_event_id bigint, event_max int, out members int, out is_complete boolean
) language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  delete from audience_member where channel_oa_id = account_id and user_id = any (user_ids);
  get diagnostics members = row_count;
  delete from member_touch where channel_oa_id = account_id and user_id = any (user_ids);
  delete from tracked_activity where channel_oa_id = account_id and user_id = any (user_ids);
  is_complete := scrub_events(account_id, user_ids, last_event_id, event_max);
end $$;
