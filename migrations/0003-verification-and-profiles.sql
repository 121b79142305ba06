-- What the service asks the platform for: tests of the webhook, profiles, the list of followers.

alter table official_account
  -- tests of the webhook since the hour began: the platform allows 60 an hour
  add column webhook_test_hour timestamptz,
  add column webhook_test_count integer not null default 0,
  -- where an import of the followers stands: {"next": …, "atMs": …, "seen": …, "added": …, "passedOver": …}; null: none is under way
  add column followers_import jsonb;

alter table audience_member
  -- when the profile is to be asked for; null: not until the person follows again
  add column profile_due_at timestamptz default now(),
  -- when it was last asked for
  add column profile_checked_at timestamptz;

-- Activity moves neither column, so "seen again" stays a heap-only update.
create index audience_member_profile_due on audience_member (channel_oa_id, profile_due_at)
  where profile_due_at is not null;
