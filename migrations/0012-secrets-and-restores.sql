-- Encryption of secrets (decision 57), the erasure ledger (decision 58), restored backups (decision 59), and API credentials that
-- expire or change without an outage.

-- Encrypted secrets ---------------------------------------------------------------------------------------------------

-- An encrypted value begins with enc:v1: (src/config/secret-keys.ts). Other programs insert plain text. A blank value is not a secret.
create function is_plain_secret(value text) returns boolean language sql immutable parallel safe
  return value ~ '\S' and value not like 'enc:v1:%';

-- Rows that are still to be encrypted.
create index official_account_plain on official_account (id)
  where is_plain_secret(channel_secret) or is_plain_secret(channel_access_token) or is_plain_secret(chat_secret);
create index endpoint_plain on endpoint (id) where is_plain_secret(secret) or is_plain_secret(previous_secret);
create index notification_channel_plain on notification_channel (id) where is_plain_secret(target) or is_plain_secret(secret);

-- The version was a hash of the values. Encryption changes the values but admits the same deliveries, and a hash would let the
-- holder of a dump test guesses of a secret. So the version is random.
create function random_version() returns bigint language sql volatile
  return hashtextextended(gen_random_uuid()::text, 0);
alter table official_account alter column credentials_version drop expression;
alter table official_account alter column credentials_version set default random_version();
-- Dropping the expression keeps the hashes. Instances that have cached an account read it again.
update official_account set credentials_version = random_version();

-- A transaction that only encrypts values sets oa_audience.encrypts to 'on'.
create function only_encrypts() returns boolean language sql stable
  return current_setting('oa_audience.encrypts', true) is not distinct from 'on';

create function renew_credentials_version() returns trigger language plpgsql as $$
begin
  new.credentials_version := random_version();
  return new;
end $$;
create trigger official_account_credentials_version
  before update of channel_secret, oa_hash, chat_secret, chat_inbox_id, tracking_key, bot_user_id, login_channel_id, organization_id
  on official_account
  for each row when ((old.channel_secret, old.oa_hash, old.chat_secret, old.chat_inbox_id, old.tracking_key, old.bot_user_id,
                      old.login_channel_id, old.organization_id)
                     is distinct from
                     (new.channel_secret, new.oa_hash, new.chat_secret, new.chat_inbox_id, new.tracking_key, new.bot_user_id,
                      new.login_channel_id, new.organization_id)
                     and not only_encrypts())
  execute function renew_credentials_version();

drop trigger official_account_credentials_changed on official_account;
create trigger official_account_credentials_changed after update of channel_id, channel_secret, channel_access_token on official_account
  for each row when ((old.channel_id, old.channel_secret, old.channel_access_token)
                     is distinct from (new.channel_id, new.channel_secret, new.channel_access_token)
                     and not only_encrypts())
  execute function check_account_soon();

-- API credentials -----------------------------------------------------------------------------------------------------

-- Null: the credential never expires.
alter table api_client add column expires_at timestamptz;
alter table api_key add column expires_at timestamptz;
-- Written at most once an hour.
alter table api_client add column last_used_at timestamptz;
alter table api_key add column last_used_at timestamptz;
-- Valid beside client_secret until the rotation is finished.
alter table api_client add column previous_client_secret text;

-- Erasures and restores -----------------------------------------------------------------------------------------------

-- The member that was erased, for a tombstone after a restore. Null: nobody was a member, or an older release erased the person.
alter table erased_person add column member_id bigint;
-- Whether the erasure is on disk in ERASURE_LEDGER.
alter table erased_person add column in_ledger boolean not null default false;
-- A repeated DELETE looks up the erasure of its member.
create index erased_person_not_in_ledger on erased_person (channel_oa_id, member_id) where not in_ledger;
-- Each minute, one instance records these erasures in the order of their times. A restore loses the newest ones.
create index erased_person_ledger_backlog on erased_person (erased_at) where not in_ledger;

-- Null: no. A removal deletes the erasures of the account long before the account. Meanwhile, the ledger does not count them as lost.
-- Without a default, because can_call_platform() uses the type of the row: PostgreSQL before 18 would refuse it.
alter table official_account add column is_being_removed boolean;

-- Restored backups. Changes that were committed between the two times are lost, but clients may have read them.
create table database_restore (
  backup_at timestamptz not null,
  restored_at timestamptz not null default now(),
  primary key (backup_at, restored_at)
);
