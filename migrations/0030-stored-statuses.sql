-- The status of each account is stored once, by the pass over the fleet. Everything else reads it.
alter table account_check
  -- A new account is quiet until the next pass: LINE has delivered nothing yet.
  add column status text not null default 'quiet',
  -- All of its problems, the worst first, as [{reason, status, facts}].
  add column problems jsonb not null default '[]',
  -- Since when passes see this status.
  add column status_since timestamptz not null default now();

-- What each channel was sent last about an account that has a problem.
drop table account_alert;
alter table notification_account add column is_current boolean not null default false;
create index notification_account_current on notification_account (channel_oa_id) where is_current;

-- Since when LINE responds to no check, as the channel was notified. Null: it was not, or LINE responds again.
alter table notification_channel add column outage_since timestamptz;
alter table notification_watch
  drop column platform_down_since,
  drop column is_platform_announced,
  -- Whether LINE responds to no check of any account, and since when passes see that.
  add column is_platform_down boolean not null default false,
  add column platform_since timestamptz not null default '-infinity';
