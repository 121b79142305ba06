-- What operators see of each account: its deliveries by the hour, what the last checks found, and its followers by the day.

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

-- The rhythm of an account is compared over four weeks, so the accounts of today need it from the start. What was stored
-- stands for what was delivered.
insert into delivery_hour (channel_oa_id, hour, source, deliveries, accepted, unapplied, last_at)
select channel_oa_id, date_trunc('hour', received_at), source, count(*), count(*), count(failure), max(received_at)
  from event where received_at > now() - interval '28 days'
 group by 1, 2, 3;

-- Earlier versions count refused deliveries in refused_delivery, and still do while instances are replaced.
insert into delivery_hour as h (channel_oa_id, hour, source, refused, last_refused_at)
select channel_oa_id, date_trunc('hour', last_at), source, sum(count), max(last_at)
  from refused_delivery
 group by 1, 2, 3
    on conflict (channel_oa_id, hour, source) do update set
       refused = excluded.refused, last_refused_at = excluded.last_refused_at;

-- What the service last learned about each account by itself, and when it looks again.
create table account_check (
  channel_oa_id bigint primary key references official_account (id) on delete cascade,
  -- When the account is due to be verified. An instance that takes it moves this time first.
  due_at timestamptz not null default now(),
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
  counted_change bigint
);

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
