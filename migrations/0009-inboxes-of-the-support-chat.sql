-- One account of the support chat may have several inboxes, one for each official account, and calls every webhook for all of
-- them. Null: whatever comes is the account's.
alter table official_account add column chat_inbox_id text;
