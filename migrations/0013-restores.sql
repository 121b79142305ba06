-- What a restored database has to forget and to revoke again (decisions 58 and 59). `migrations/functions/restores.sql` has changed too.

-- One row: the database may have people who were erased according to ERASURE_LEDGER. A restore inserts the row, and `erasures reapply`
-- deletes it when it has applied every line. Until then, a service with ERASURE_LEDGER does not start.
create table pending_reapply (
  is_pending boolean primary key default true check (is_pending),
  since timestamptz not null default now()
);

-- Revocations that are not yet in the directory of ERASURE_LEDGER. A trigger inserts them, because other programs also revoke.
create table unrecorded_revocation (
  id bigint generated always as identity primary key,
  -- What ended. src/operator/backups/revived.ts says what a restore brings back.
  kind text not null,
  object_id bigint not null,
  revoked_at timestamptz not null default now()
);

create function note_revocation() returns trigger language plpgsql security definer as $$
begin
  insert into unrecorded_revocation (kind, object_id) values (tg_argv[0], old.id);
  return null;
end $$;
-- It has its owner's rights, so it must not resolve table names through a caller's temporary tables.
do $$ begin
  execute format('alter function note_revocation() set search_path = %I, pg_temp', current_schema());
end $$;

create trigger api_client_revoked after update of status on api_client
  for each row when (old.status = 'active' and new.status <> 'active') execute function note_revocation('client');
create trigger api_client_removed after delete on api_client
  for each row when (old.status = 'active') execute function note_revocation('client');
create trigger api_client_secret_ended after update of client_secret, previous_client_secret on api_client
  for each row when ((old.client_secret <> new.client_secret and old.client_secret is distinct from new.previous_client_secret)
                     or (old.previous_client_secret <> new.client_secret
                         and old.previous_client_secret is distinct from new.previous_client_secret))
  execute function note_revocation('client-secret');
create trigger api_client_expires_earlier after update of expires_at on api_client
  for each row when (new.expires_at < coalesce(old.expires_at, 'infinity')) execute function note_revocation('client-expiry');

create trigger api_key_revoked after update of status on api_key
  for each row when (old.status = 'active' and new.status <> 'active') execute function note_revocation('key');
create trigger api_key_removed after delete on api_key
  for each row when (old.status = 'active') execute function note_revocation('key');
create trigger api_key_expires_earlier after update of expires_at on api_key
  for each row when (new.expires_at < coalesce(old.expires_at, 'infinity')) execute function note_revocation('key-expiry');

create trigger operator_disabled after update of status on operator
  for each row when (old.status = 'active' and new.status <> 'active') execute function note_revocation('operator');
create trigger operator_rights_changed after update of role, organization_ids on operator
  for each row when ((old.role, old.organization_ids) is distinct from (new.role, new.organization_ids))
  execute function note_revocation('operator-rights');
create trigger operator_password_replaced after update of password_hash on operator
  for each row when (old.password_hash <> new.password_hash) execute function note_revocation('operator-password');

-- The first step of a removal already ends the account's credentials.
create trigger official_account_ended after update of is_being_removed on official_account
  for each row when (old.is_being_removed is not true and new.is_being_removed) execute function note_revocation('account');
create trigger official_account_removed after delete on official_account
  for each row when (old.is_being_removed is not true) execute function note_revocation('account');
create trigger endpoint_removed after delete on endpoint
  for each row execute function note_revocation('endpoint');
create trigger notification_channel_removed after delete on notification_channel
  for each row execute function note_revocation('notifications');
