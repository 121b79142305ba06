-- Retention reads what it deletes and nothing else, also after years. A BRIN index finds old rows only while no page holds both
-- old and new ones, so not in a table whose space is reused. See decision 48.

-- Keys in partitions by the time that they begin with: a month is dropped as a whole. src/maintenance creates the months. The
-- keys stored until now become the default partition, which also receives keys of times without a partition. Its primary key
-- keeps its name: the previous version recognises by it that two flushes have inserted the same key.
drop index event_key_received;
alter table event_key rename to event_key_default;
create index if not exists event_key_default_received on event_key_default (received_at);
-- Finds the keys of a month that gets a partition.
create index if not exists event_key_default_key on event_key_default (key);

create table event_key (
  channel_oa_id bigint not null,
  key uuid not null,
  received_at timestamptz not null default now(),
  constraint event_key_identity primary key (channel_oa_id, key)
) partition by range (key);

-- Keys that begin with a hash: 63 of 64. As times, these values are after the year 2109. In a partition of its own, which is not
-- the default one, because PostgreSQL reads the whole default partition whenever a partition is added.
create table event_key_hashed partition of event_key
  for values from ('04000000-0000-0000-0000-000000000000') to (maxvalue);
create index event_key_hashed_received on event_key_hashed (received_at);
with hashed as (
  delete from event_key_default where key >= '04000000-0000-0000-0000-000000000000' returning *
)
insert into event_key_hashed select * from hashed;

alter table event_key attach partition event_key_default default;

-- The others are small enough to be deleted from, by B-trees.
create index if not exists member_edit_edited_at on member_edit (edited_at);
drop index member_edit_edited;
create index if not exists unsent_message_unsent on unsent_message (unsent_at);
create index if not exists erased_member_deleted_at on erased_member (deleted_at);
create index if not exists delivery_hour_hour on delivery_hour (hour);
create index if not exists account_day_day on account_day (day);
create index if not exists endpoint_delivery_failed_created on endpoint_delivery (created_at) where failed_at is not null;

-- The month in which tracked activity last grew, or was last found to belong to a member. An index on received_at would end
-- the heap-only updates of this table. This column changes once a month. The default is stable, so no row is rewritten: all
-- activity of today counts as this month's.
alter table tracked_activity add column active_month date not null default date_trunc('month', now() at time zone 'UTC')::date;
create index if not exists tracked_activity_active_month on tracked_activity (active_month);
