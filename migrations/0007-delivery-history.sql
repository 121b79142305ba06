-- The last attempts to send to each endpoint, for operators, without content. A busy endpoint has a sample of its accepted ones.

-- The slots of endpoint_attempt that are written next. A sender locks the row in any case, so two senders never write to one slot.
alter table endpoint_answer
  add column accepted_slot int not null default 0,
  add column refused_slot int not null default 0;

-- Two rings per endpoint, so that many accepted attempts do not push out the refused ones. An attempt replaces the oldest one of its
-- ring, so the number of rows is bounded and nothing has to be deleted.
create table endpoint_attempt (
  endpoint_id bigint not null references endpoint (id) on delete cascade,
  -- The response was 2xx.
  was_accepted boolean not null,
  slot int not null,
  started_at timestamptz not null,
  -- Of endpoint_delivery, whose row is deleted when the endpoint has accepted it.
  delivery_id bigint not null,
  -- 1 for the first attempt of a delivery.
  attempt int not null,
  -- Null: there was no HTTP response.
  status int,
  duration_ms int not null,
  -- Events in the delivery, or 1 for a change of a member. Null: the delivery was removed during the attempt.
  events int,
  -- Why there was no response. As in endpoint_answer, no text of a receiver is stored.
  reason text not null,
  primary key (endpoint_id, was_accepted, slot)
-- No index covers what changes, so an update needs only free space in its page.
) with (fillfactor = 60);
