-- The report of followers (docs/report.md).

-- Follows and unfollows are few, so other events pay nothing. On a large table, create it by hand before the upgrade: docs/upgrading.md.
create index if not exists event_follow on event (channel_oa_id, occurred_at) where kind in ('follow', 'unfollow');

-- Of the people who followed for the first time on that day: those who left within 7 days. Null: counted by an older release.
alter table account_day add column blocked_within_7_days bigint;

-- The part of account_day that came from each named source.
create table source_day (
  channel_oa_id bigint not null references official_account (id) on delete cascade,
  day date not null,
  source text not null,
  first_follows bigint not null,
  returns bigint not null,
  unfollows bigint not null,
  blocked_within_7_days bigint not null,
  -- Members whose first follow was on that day: those who follow now, and those who were seen in the last 30 days.
  following bigint not null,
  active bigint not null,
  primary key (channel_oa_id, day, source)
);
-- Retention reads by it.
create index source_day_day on source_day (day);
select revoke_default_privileges(array['source_day'::regclass]);
