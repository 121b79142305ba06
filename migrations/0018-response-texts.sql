-- The beginning of the responses of receivers, which operators need to see why an endpoint fails. A receiver may echo what it was sent,
-- so an erasure and an unsent message delete the texts of all endpoints of the account.

-- At most 1,000 characters. Null: an accepted attempt, no text, or a deleted one.
alter table endpoint_attempt add column response_text text;

-- No text is stored of a response to a request that began before: it may contain what was erased then. A new row also begins with the
-- current time, because an erasure before it left no trace. So the first response of an endpoint has no text.
alter table endpoint_answer add column content_erased_at timestamptz not null default now();

create function forget_response_texts() returns trigger language plpgsql as $$
begin
  -- Most accounts have none, and a reapplied ledger erases a million people.
  if not exists (select from endpoint where channel_oa_id = new.channel_oa_id) then return null; end if;
  -- Senders lock these rows in the same order, and then store attempts. A sender that comes later sees the new time.
  perform from endpoint_answer
    where endpoint_id in (select id from endpoint where channel_oa_id = new.channel_oa_id)
    order by endpoint_id for no key update;
  update endpoint_answer set content_erased_at = clock_timestamp()
   where endpoint_id in (select id from endpoint where channel_oa_id = new.channel_oa_id);
  update endpoint_attempt set response_text = null
   where endpoint_id in (select id from endpoint where channel_oa_id = new.channel_oa_id) and response_text is not null;
  return null;
end $$;

-- Deferred to the end of the transaction, because senders of all accounts wait for these rows.
create constraint trigger erased_person_response_texts after insert or update of erased_at on erased_person
  deferrable initially deferred for each row execute function forget_response_texts();
create constraint trigger unsent_message_response_texts after insert on unsent_message
  deferrable initially deferred for each row execute function forget_response_texts();
