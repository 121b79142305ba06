-- Tracking events apart from signed ones: anybody can send them, so they have a retention of their own, and their rows and
-- indexes slow nobody else's events down. Tracking events stored before stay in `event` until its retention ends.

-- In daily partitions, which src/maintenance creates ahead of time and drops after TRACKING_RETENTION_DAYS.
create table tracking_event (
  -- One sequence for both tables, so that an id names one event, and an erasure knows which events arrived after it.
  id bigint not null default nextval(pg_get_serial_sequence('event', 'id')),
  channel_oa_id bigint not null,
  kind text not null,
  occurred_at timestamptz not null,
  received_at timestamptz not null default now(),
  user_id text,
  -- The event as received, as JSON text without its write key.
  payload text not null
) partition by range (received_at);

create index tracking_event_id on tracking_event using brin (id) with (autosummarize = on);
create index tracking_event_user on tracking_event (user_id, channel_oa_id) where user_id is not null;

-- Receives the events of a day without a partition, so that none is refused. Normally empty.
create table tracking_event_default partition of tracking_event default;

-- Every stored event, for operators.
create view stored_event as
select id, channel_oa_id, source, kind, occurred_at, received_at, user_id, other_user_ids, payload, failure
  from event
 union all
select id, channel_oa_id, 'tracking', kind, occurred_at, received_at, user_id, null, payload, null
  from tracking_event;
