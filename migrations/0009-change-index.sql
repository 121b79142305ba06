-- The indexes of the delta feed, in the order of change numbers. Writers of members wait while the index is built, 1 to
-- 2.5 s per million members. For large audiences, create it by hand before the upgrade (docs/operations.md).
create index if not exists audience_member_change on audience_member (channel_oa_id, change, id);
create index if not exists erased_member_change on erased_member (channel_oa_id, change, id);

-- Instances of the previous version order their feed by time. Without these indexes they sort, until they are replaced.
drop index if exists audience_member_updated;
drop index if exists erased_member_deleted;
