/** Which endpoints have a backlog, for metrics that are read every few seconds. */
import { ENDPOINTS_WITH_DELIVERIES } from '../endpoints/backlog.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type EndpointSummary, findEndpoints } from './endpoints.ts'

const selectBacklogs = statement('select-endpoint-backlogs')`${ENDPOINTS_WITH_DELIVERIES}`

/** The endpoints for which deliveries wait or have failed. */
export async function listBacklogs(database: Queryable): Promise<EndpointSummary[]> {
  const found = await database.query<{ id: bigint }>(selectBacklogs)
  return findEndpoints(
    database,
    found.map(({ id }) => id),
  )
}
