-- What proves that the deliveries of an account arrive. Without defaults, because can_call_platform() uses the type of the row:
-- PostgreSQL before 18 would refuse them.

-- Earlier deliveries say nothing about the present secret. Null: it is the first one.
alter table official_account add column channel_secret_changed_at timestamptz;

-- The failed check of the last webhook test, and the time of that test. Other verifications keep both. Null: it passed, or there was none.
alter table official_account add column webhook_test_failure jsonb;
alter table official_account add column webhook_tested_at timestamptz;

create or replace function renew_credentials_version() returns trigger language plpgsql as $$
begin
  new.credentials_version := random_version();
  if new.channel_secret is distinct from old.channel_secret then
    new.channel_secret_changed_at := now();
  end if;
  return new;
end $$;
