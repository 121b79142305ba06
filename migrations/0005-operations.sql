-- What operators see of each account: its deliveries by the hour, what the last checks found, and its followers by the day. And the
-- sessions of the console, and which programs may run on this schema.

-- Deliveries by account, hour and source. Instances count in memory and add their counts every ten seconds, so these are
-- statistics: an instance that is killed loses at most ten seconds of them.
create table delivery_hour (
  channel_oa_id bigint not null,
  hour timestamptz not null,
  source text not null,
  -- Answered with 2xx, and the events in them by outcome. `unapplied` events were stored without effect.
  deliveries bigint not null default 0,
  accepted bigint not null default 0,
  duplicates bigint not null default 0,
  unapplied bigint not null default 0,
  -- Answered with 403 because of the signature, and with 503.
  refused bigint not null default 0,
  failed bigint not null default 0,
  last_at timestamptz,
  last_refused_at timestamptz,
  primary key (channel_oa_id, hour, source)
) with (fillfactor = 70);
create index delivery_hour_refused on delivery_hour (channel_oa_id, hour) where refused > 0;
create index delivery_hour_hour on delivery_hour (hour);

-- What the service last learned about each account by itself, and when it looks again. The account monitor takes what is due from an
-- index, so that it costs the same with three accounts and with 30,000.
create table account_check (
  channel_oa_id bigint primary key references official_account (id) on delete cascade,
  -- When the account is due to be verified. An instance that takes it moves this time first.
  due_at timestamptz not null default now(),
  -- When the account is due to be counted.
  count_due_at timestamptz not null default now(),
  -- When the platform was asked last, and why it did not answer. Null: it did.
  checked_at timestamptz,
  fault text,
  -- Of the stored channel access token. Null: it does not expire, or it is not known.
  token_expires_at timestamptz,
  -- Messages per month. A null limit: the plan has none.
  quota_limit bigint,
  quota_used bigint,
  -- Members by relationship, counted every ten minutes if they changed.
  members bigint,
  following bigint,
  blocked bigint,
  profiles_due bigint,
  counted_at timestamptz,
  -- The newest change number among the counted members.
  counted_change bigint,

  -- What an account's status needs and what is too slow to compute for all accounts at once: 10,000 accounts must be listed within a
  -- second. When the figures below were computed.
  judged_at timestamptz,
  -- Of the 23 hours before the hour of `judged_at`. The counts of that hour and later ones are read from delivery_hour.
  deliveries_before bigint,
  events_before bigint,
  failed_before bigint,
  -- The platform's newest delivery at that time, and the chance of the silence that followed. A delivery since then ends the silence.
  silent_since timestamptz,
  silence_chance float8,
  following_week_ago bigint,
  -- The newest day on which the platform counted more changes than were delivered.
  missing_day date,
  missing bigint
);
create index account_check_due on account_check (due_at);
create index account_check_count_due on account_check (count_due_at);

-- A new account, and one whose credentials have changed, is due immediately.
create function check_account_soon() returns trigger language plpgsql security definer as $$
begin
  insert into account_check (channel_oa_id) values (new.id)
      on conflict (channel_oa_id) do update set due_at = now();
  return null;
end $$;
create trigger official_account_added after insert on official_account
  for each row execute function check_account_soon();
create trigger official_account_credentials_changed after update of channel_id, channel_secret, channel_access_token on official_account
  for each row when ((old.channel_id, old.channel_secret, old.channel_access_token)
                     is distinct from (new.channel_id, new.channel_secret, new.channel_access_token))
  execute function check_account_soon();
-- It has its owner's rights, so it must not resolve table names through a caller's temporary tables.
do $$ begin
  execute format('alter function check_account_soon() set search_path = %I, pg_temp', current_schema());
end $$;

-- The chance of a silence is the product over its whole hours, at most three days of them. An hour in which the account had
-- deliveries in b of w weeks before stays empty with the chance (w - b + 1) / (w + 2), by Laplace's rule of succession. An hour in
-- which it never had any says nothing. An account that was never delivered to for a whole week has no rhythm yet. Null if there is
-- no hour that says anything.
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

-- Each account by the day. Days are the platform's: they begin at 15:00 UTC of the day before.
create table account_day (
  channel_oa_id bigint not null references official_account (id) on delete cascade,
  day date not null,
  -- Members as counted last on that day.
  members bigint,
  following bigint,
  blocked bigint,
  -- Events that happened on that day: people who followed for the first time, who came back, and who left.
  first_follows bigint,
  returns bigint,
  unfollows bigint,
  events_counted_at timestamptz,
  -- The platform's own statistics at the end of that day. `line_followers` counts everybody who ever followed.
  line_followers bigint,
  line_reachable bigint,
  line_blocks bigint,
  primary key (channel_oa_id, day)
);
create index account_day_day on account_day (day);

-- Sessions of the console.
create table operator_session (
  -- SHA-256 of the cookie's value, so that a copy of the database opens no session.
  id_hash bytea primary key,
  -- HMAC-SHA-256 of the cookie's value under CONSOLE_TOKEN: another token ends the session. It says nothing about the token to a
  -- reader of the table, who does not know the cookie.
  token_mac bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index operator_session_expiry on operator_session (expires_at);

-- One row. A program may run on this schema if the newest migration that it knows is at least `oldest_supported`, also when
-- the schema has newer migrations. A migration that breaks the statements of older programs raises it with an update.
create table schema_compatibility (
  is_only_row boolean primary key default true check (is_only_row),
  oldest_supported integer not null
);
insert into schema_compatibility (oldest_supported) values (5);
