-- Anybody can send tracking events of any user id: activity of people who never become members must not stay for ever.
-- When it was last told; without an index, so that "seen again" stays a heap-only update.
alter table tracked_activity add column received_at timestamptz not null default now();
