-- The history of an endpoint has refused attempts only. endpoint_answer has the last response, also an accepted one.
delete from endpoint_attempt where was_accepted;
alter table endpoint_attempt drop column was_accepted;
alter table endpoint_attempt add primary key (endpoint_id, slot);
alter table endpoint_answer drop column accepted_slot;
