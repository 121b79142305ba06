-- What an account's status needs and what is too slow to compute for all accounts at once: 10,000 accounts must be listed within a
-- second. The account monitor computes these figures every ten minutes.

alter table account_check
  -- When the figures below were computed.
  add column judged_at timestamptz,
  -- Of the 23 hours before the hour of `judged_at`. The counts of that hour and later ones are read from delivery_hour.
  add column deliveries_before bigint,
  add column events_before bigint,
  add column failed_before bigint,
  -- The platform's newest delivery at that time, and the chance of the silence that followed. A delivery since then ends the silence.
  add column silent_since timestamptz,
  add column silence_chance float8,
  add column following_week_ago bigint,
  -- The newest day on which the platform counted more changes than were delivered.
  add column missing_day date,
  add column missing bigint;

-- The chance of a silence is the product over its whole hours, at most three days of them. An hour in which the account had
-- deliveries in b of w weeks before stays empty with the chance (w - b + 1) / (w + 2), by Laplace's rule of succession. An hour in
-- which it never had any says nothing. An account that was never delivered to for a whole week has no rhythm yet. Null if there is
-- nothing to judge.
create function silence_chance(account bigint, silent_since timestamptz) returns float8 language sql stable parallel safe
  return (
    select exp(sum(ln((weeks - least(busy, weeks) + 1) / (weeks + 2.0)::float8)))
      from (select count(*) as busy
              from generate_series(1, 4) as week
             -- "offset 0" keeps PostgreSQL from reading all hours of the account for each week.
             cross join lateral (
               select h.hour from delivery_hour h
                where h.channel_oa_id = account and h.source = 'line' and h.deliveries > 0
                  and h.hour > date_trunc('hour', silent_since) - week * interval '7 days'
                  and h.hour < least(date_trunc('hour', now()), date_trunc('hour', silent_since) + interval '73 hours')
                               - week * interval '7 days'
               offset 0) h
             group by h.hour + week * interval '7 days') slot
     cross join (select least(4, extract(epoch from silent_since - min(h.hour))::int / 604800) as weeks
                   from delivery_hour h where h.channel_oa_id = account) history
     where weeks >= 1);
