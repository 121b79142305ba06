-- A sender that stores an attempt locks endpoint_answer, endpoint_attempt and endpoint_delivery, in this order. The removal of an endpoint
-- follows the same order, behind the endpoint's own row. So the sender must not lock that row last, as the check of this key did.
alter table endpoint_attempt
  drop constraint endpoint_attempt_endpoint_id_fkey,
  add foreign key (endpoint_id) references endpoint_answer (endpoint_id) on delete cascade;
