/** The last refused attempts to send to an endpoint, for operators. */
import { type Queryable, statement } from '../postgres/statement.ts'

export type DeliveryAttempt = {
  startedAt: string
  /** null: there was no HTTP response */
  status: number | null
  /** why there was no response, otherwise empty */
  reason: string
  /** the beginning of a response that was not 2xx; null: none, or deleted by an erasure or an unsent message */
  responseText: string | null
  durationMs: number
  /** null: unknown */
  events: number | null
  /** 1 for the first attempt of the delivery */
  attempt: number
  deliveryId: bigint
}

/**
 * An attempt that was stored twice because of a lost connection is shown once.
 *
 * $1 endpoint id bigint
 */
const selectAttempts = statement('select-endpoint-attempts')`
    select iso(started_at) as "startedAt", status,
           reason, response_text as "responseText", duration_ms as "durationMs", events, attempt, delivery_id as "deliveryId"
      from (select distinct on (delivery_id, attempt, duration_ms, status) *
              from endpoint_attempt where endpoint_id = $1
             order by delivery_id, attempt, duration_ms, status, started_at) a
     order by started_at desc, delivery_id desc, attempt desc`

/** Newest first. */
export function listAttempts(database: Queryable, endpointId: bigint): Promise<DeliveryAttempt[]> {
  return database.query<DeliveryAttempt>(selectAttempts, [endpointId])
}
