-- When leases and due times are over. A repeatable file: see CONTRIBUTING.md.
--
-- Each of them has a longest legal delay. A time further ahead than that was stored while the server's clock was ahead, and the clock
-- was corrected since: the row would wait for as long as the clock was wrong. So such a time is due as well. One minute is tolerated,
-- because now() is the time at which a transaction began. `infinity` is never due.

-- For few rows, and for columns that no index has.
create or replace function is_due(at timestamptz, longest interval) returns boolean language sql stable parallel safe
  return at <= now() or at > now() + longest + interval '1 minute' and at < 'infinity';

-- For indexes: the two ranges of times that are due. Join them with "at >= range.since and at < range.until".
create or replace function due_ranges(longest interval, out since timestamptz, out until timestamptz) returns setof record
  language sql stable parallel safe rows 2
begin atomic
  select '-infinity'::timestamptz, now() union all select now() + longest + interval '1 minute', 'infinity'::timestamptz;
end;
