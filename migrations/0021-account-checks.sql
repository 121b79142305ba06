-- What the account monitor does must cost the same with three accounts and with 30,000: it takes what is due from an index.

-- Accounts are due by `due_at` to be verified, and by `count_due_at` to be counted.
alter table account_check add column count_due_at timestamptz not null default now();
create index account_check_due on account_check (due_at);
create index account_check_count_due on account_check (count_due_at);

-- Whether an access token is stored, or what one can be issued for. A blank value counts as absent.
create function can_call_platform(account official_account) returns boolean language sql immutable parallel safe
  return coalesce(account.channel_access_token, '') ~ '\S'
         or coalesce(account.channel_id, '') <> '' and coalesce(account.channel_secret, '') ~ '\S';

-- A new account, and one whose credentials have changed, is due immediately. Before, each pass of the monitor compared all
-- accounts with all checks.
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

insert into account_check (channel_oa_id)
select a.id from official_account a
    on conflict do nothing;
