-- How far statements count the deliveries of endpoints. A repeatable file: see CONTRIBUTING.md.

-- Pending or failed deliveries of one endpoint that are counted: 10,000, or fewer if more than five endpoints have some. So a statement
-- about all endpoints reads 100,000 rows, which takes a second, however large the backlogs are. The statement timeout is 5 s. Each
-- endpoint with a backlog takes one index probe, as in pending-endpoints of src/endpoints/claims.ts.
create or replace function counted_per_endpoint() returns int language sql stable
begin atomic
  with recursive pending (id) as (
    (select endpoint_id from endpoint_delivery where failed_at is null order by endpoint_id, due_at limit 1)
     union all
    select next.endpoint_id
      from pending
      join lateral (select endpoint_id from endpoint_delivery
                     where endpoint_id > pending.id and failed_at is null order by endpoint_id, due_at limit 1) next on true
  ), failed (id) as (
    (select endpoint_id from endpoint_delivery where failed_at is not null order by endpoint_id, id limit 1)
     union all
    select next.endpoint_id
      from failed
      join lateral (select endpoint_id from endpoint_delivery
                     where endpoint_id > failed.id and failed_at is not null order by endpoint_id, id limit 1) next on true
  )
  select least(10000, 50000 / greatest(1, count(*)))::int
    from (select id from pending union select id from failed) backlog;
end;
