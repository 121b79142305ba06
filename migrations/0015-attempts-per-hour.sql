-- The page of an endpoint: attempts per hour, and which event an attempt was about.

-- Attempts of each endpoint by the hour in which they ended. A ring, as endpoint_attempt: 24 hours and the present one.
create table endpoint_hour (
  endpoint_id bigint not null references endpoint_answer (endpoint_id) on delete cascade,
  -- Hours since 1970, modulo 25.
  slot int not null,
  hour timestamptz not null,
  attempts int not null,
  -- Of the attempts: those that were not accepted.
  refused int not null,
  -- Of all attempts together.
  duration_ms bigint not null,
  primary key (endpoint_id, slot)
-- No index covers what changes, so an update needs only free space in its page.
) with (fillfactor = 60);
select revoke_default_privileges(array['endpoint_hour'::regclass]);

-- The first event of the delivery. Null: it has none, or an older release stored the attempt.
alter table endpoint_attempt add column event_key uuid;

-- An erasure adds the rows of endpoints to which nothing was sent yet, so that their first response has a text: a request that began before
-- the erasure is recognized without a row, too. Null: nothing was sent.
alter table endpoint_answer
  alter column answered_at drop not null,
  alter column answer drop not null,
  alter column content_erased_at set default '-infinity';
-- Erasures that ended before this migration added no row.
insert into endpoint_answer (endpoint_id, content_erased_at) select id, now() from endpoint order by id on conflict do nothing;

create or replace function forget_response_texts() returns trigger language plpgsql as $$
declare
  -- Most accounts have none, and a reapplied ledger erases a million people.
  ids constant bigint[] := array(select id from endpoint where channel_oa_id = new.channel_oa_id);
begin
  if ids = '{}' then return null; end if;
  -- As the removal of an endpoint, which locks it first.
  perform from endpoint where id = any (ids) order by id for key share;
  -- Senders lock these rows in the same order, and then store attempts. A sender that comes later sees the new time.
  insert into endpoint_answer (endpoint_id, content_erased_at)
  select id, clock_timestamp() from endpoint where id = any (ids) order by id
      on conflict (endpoint_id) do update set content_erased_at = clock_timestamp();
  update endpoint_attempt set response_text = null where endpoint_id = any (ids) and response_text is not null;
  return null;
end $$;
