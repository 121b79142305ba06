-- The endpoints for which a flush queued the event, so that the page of an event says what was sent after the delivery has left the queue.
-- Null: the account had no endpoint, or the event is older than this column.
alter table event add column queued_for bigint[];
