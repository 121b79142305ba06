/**
 * Commits a batch of events in one transaction:
 *
 * 1. `numberEvents` removes duplicates and numbers the remaining events.
 * 2. `bindFlush` builds the parameters of the SQL function flush_events (migrations/functions/flush.sql).
 * 3. The function locks the accounts, stores new events, applies them to members, and queues deliveries to endpoints.
 * 4. After the commit, the queued deliveries are handed over to the sender.
 * 5. `outcomesOf` returns the outcome of each event.
 *
 * A transaction that conflicts with another one is sent again.
 */

import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../postgres/schema/taken-ids.ts'
import { type BoundStatement, type SendPipeline, statement } from '../postgres/statement.ts'
import type { AdmittedEvent, Outcome } from './event.ts'
import { bindFlush, type FlushResult, numberEvents, outcomesOf } from './flush-batch.ts'

interface FlushOptions {
  before?: BoundStatement[]
  lockTimeoutMs?: number
  statementTimeoutMs?: number
  handOver?: HandOver
}

/** Receives the committed deliveries to endpoints. */
export type HandOver = (deliveries: LeasedDelivery[]) => void

export interface LeasedDelivery {
  id: bigint
  accountId: bigint
  endpointId: bigint
}

/** Each attempt sees the rows that the previous one conflicted with, so ten new conflicts in a row do not happen. */
const ATTEMPTS_MAX = 10

/**
 * Commits the batch and returns the outcome of each event, in order. An event that is in the batch twice counts once. If it throws
 * DatabaseUnavailable or another error of the database, nothing was stored.
 * @param send may send the transaction again after a lost connection; events that were already committed are then duplicates
 */
export async function flush(
  send: SendPipeline,
  batch: AdmittedEvent[],
  { before = [], handOver, ...limits }: FlushOptions = {},
): Promise<Outcome[]> {
  const numbered = numberEvents(batch)
  const statements = [...limitStatements(limits), ...before, bindFlush(numbered)]
  for (let attempt = 1; ; attempt += 1) {
    try {
      const [result] = (await send(statements)).at(-1) as unknown as [FlushResult]
      if (result.leased_ids !== null) handOver?.(leasedDeliveries(result))
      return outcomesOf(batch, numbered, result)
    } catch (error) {
      if (attempt === ATTEMPTS_MAX) throw error
      if (violatedConstraint(error) === MEMBER_ID_TAKEN) {
        await skipTakenMemberIds(send, [...new Set(numbered.admissions.map(({ accountId }) => accountId))])
      } else if (!isConflict(error)) throw error
    }
  }
}

/** The primary key of a partition of event_key. */
const KEY_TAKEN = /^event_key(_\w+)?_pkey$/

/** Serialization failure (40001), deadlock (40P01), or a key that a concurrent transaction also inserted. */
export function isConflict(error: unknown): boolean {
  return (
    KEY_TAKEN.test(violatedConstraint(error) ?? '') || ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
  )
}

function leasedDeliveries({ leased_ids, leased_accounts, leased_endpoints }: FlushResult): LeasedDelivery[] {
  return (leased_ids ?? []).map((id, index) => ({
    id: BigInt(id),
    accountId: BigInt(leased_accounts?.[index] as string),
    endpointId: BigInt(leased_endpoints?.[index] as string),
  }))
}

/** Sets the timeouts of this transaction. $1 text, $2 text: milliseconds; null keeps the connection's own. */
const setLimits = statement('set-limits')`
    select set_config('lock_timeout', coalesce($1, current_setting('lock_timeout')), true),
           set_config('statement_timeout', coalesce($2, current_setting('statement_timeout')), true)`

function limitStatements({ lockTimeoutMs, statementTimeoutMs }: FlushOptions): BoundStatement[] {
  if (lockTimeoutMs === undefined && statementTimeoutMs === undefined) return []
  return [{ statement: setLimits, values: [lockTimeoutMs ?? null, statementTimeoutMs ?? null] }]
}
