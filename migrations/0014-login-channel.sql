-- The LINE Login channel whose ID tokens prove people in tracking events. Null: none, so every ID token is rejected.
alter table official_account add column login_channel_id text;

-- It admits proven events, so a change must count on the next delivery (decision 14). The expression of a generated column cannot
-- be changed in PostgreSQL 14, so the column is replaced, which rewrites the table: one row per account, a few milliseconds.
-- Every version changes. Instances of the previous version find their cached accounts stale once, and read them again.
alter table official_account drop column credentials_version;
alter table official_account add column credentials_version bigint not null generated always as (hashtextextended(
  quote_nullable(channel_secret) || quote_nullable(oa_hash) || quote_nullable(chat_secret)
  || quote_nullable(chat_inbox_id) || quote_nullable(tracking_key) || quote_nullable(login_channel_id), 0)) stored;
