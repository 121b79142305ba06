-- Whose events are: of several accounts behind one module channel, and of people whom ID tokens prove.

-- The LINE Login channel whose ID tokens prove people in tracking events. Null: none, so every ID token is rejected.
alter table official_account add column login_channel_id text;

-- bot_user_id and the organization decide which account a delivery's events belong to (decision 29), and login_channel_id admits
-- proven events. A cached account must not decide with old ones, so they count as credentials. PostgreSQL before 17 cannot change
-- the expression of a generated column, so the column is replaced. Its type stays, so statements that instances of the previous
-- version have prepared remain valid. The table holds configuration. With 10,000 accounts, this migration took 0.4 s beside
-- deliveries on two busy cores.
alter table official_account
  drop column credentials_version,
  add column credentials_version bigint not null generated always as (hashtextextended(
    quote_nullable(channel_secret) || quote_nullable(oa_hash) || quote_nullable(chat_secret)
    || quote_nullable(chat_inbox_id) || quote_nullable(tracking_key) || quote_nullable(bot_user_id)
    || quote_nullable(login_channel_id) || organization_id::text, 0)) stored;

-- Finds the account of a destination. Not unique: other programs write this table, and an account may be in it twice.
create index official_account_bot on official_account (organization_id, bot_user_id);

-- The functions of this release count only what a person did (migrations/functions/flush.sql, decision 30). Members keep the
-- counts that they have.
