-- Reply tokens go to one endpoint, and no text of a receiver is stored.

-- line: whether the endpoint had reply tokens when the events came. It sends them only if it has them still, so moving `replies`
-- to another endpoint gives no token to two tools. Null: the delivery is older than this column.
alter table endpoint_delivery add column replies boolean;

-- A receiver may echo what it was sent, and an erasure does not reach that. So `answer` only says why there was no response.
update endpoint_answer set answer = '' where status is not null and answer <> '';
update endpoint_delivery set answer = '' where status is not null and answer <> '';

-- Instances of the previous version still write the beginning of responses. The next release drops the function and its triggers.
create function drop_response_text() returns trigger language plpgsql as $$
begin
  new.answer := '';
  return new;
end $$;
create trigger endpoint_answer_text before insert or update of answer on endpoint_answer
  for each row when (new.status is not null and new.answer <> '') execute function drop_response_text();
create trigger endpoint_delivery_text before update of answer on endpoint_delivery
  for each row when (new.status is not null and new.answer <> '') execute function drop_response_text();
