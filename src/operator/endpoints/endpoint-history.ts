/** The last attempts to send to an endpoint, for operators. */
import { type Queryable, statement } from '../../postgres/statement.ts'

export type DeliveryAttempt = {
  startedAt: string
  wasAccepted: boolean
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
 * At most 2 × ATTEMPTS_KEPT rows. An attempt that was stored twice because of a lost connection is shown once.
 *
 * $1 endpoint id bigint
 */
const selectAttempts = statement('select-endpoint-attempts')`
    select to_char(started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "startedAt", was_accepted as "wasAccepted",
           status, reason, response_text as "responseText", duration_ms as "durationMs", events, attempt, delivery_id as "deliveryId"
      from (select distinct on (delivery_id, attempt, duration_ms, status) *
              from endpoint_attempt where endpoint_id = $1
             order by delivery_id, attempt, duration_ms, status, started_at) a
     order by started_at desc, delivery_id desc, attempt desc`

/** Newest first: the last accepted and the last refused attempts. */
export function listAttempts(database: Queryable, endpointId: bigint): Promise<DeliveryAttempt[]> {
  return database.query<DeliveryAttempt>(selectAttempts, [endpointId])
}
