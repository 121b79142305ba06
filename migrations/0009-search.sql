-- Search of a person in all accounts by user id or external id.

-- All other indexes of members begin with the account. One lookup per account takes 0.6 s in 30,000 accounts, and more than 10 s with
-- a cold cache. These indexes find a person in some milliseconds. They cost 20 µs of CPU time and 1 KB of WAL per new member, and
-- 70 MB for two million members. The hash keeps them small, and no statement of one account can use them by mistake.
--
-- On a large table, create them by hand with `concurrently` before the upgrade. Two million members take 8 s.
create index if not exists audience_member_any_user on audience_member (hashtextextended(user_id, 0));
create index if not exists audience_member_any_external_id on audience_member (hashtextextended(external_id, 0))
  where external_id is not null;
