/** Which endpoints have a backlog, for metrics that are read every few seconds. */
import { type Queryable, statement } from '../postgres/statement.ts'
import { type EndpointSummary, findEndpoints } from './endpoints.ts'

/**
 * Finds one endpoint after the other in the indexes of pending and of failed deliveries, so the cost grows with the endpoints that
 * have some, not with all.
 */
const selectBacklogs = statement('select-endpoint-backlogs')`
    with recursive pending (id) as (
      (select endpoint_id from endpoint_delivery where failed_at is null order by endpoint_id, due_at limit 1)
       union all
      select next.endpoint_id
        from pending
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > pending.id and failed_at is null
                       order by endpoint_id, due_at limit 1) next on true
    ), failed (id) as (
      (select endpoint_id from endpoint_delivery where failed_at is not null order by endpoint_id, id limit 1)
       union all
      select next.endpoint_id
        from failed
        join lateral (select endpoint_id from endpoint_delivery
                       where endpoint_id > failed.id and failed_at is not null
                       order by endpoint_id, id limit 1) next on true
    )
    select id from pending union select id from failed`

/** The endpoints for which deliveries wait or have failed. */
export async function listBacklogs(database: Queryable): Promise<EndpointSummary[]> {
  const found = await database.query<{ id: bigint }>(selectBacklogs)
  return findEndpoints(
    database,
    found.map(({ id }) => id),
  )
}
