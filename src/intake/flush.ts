/**
 * Commits a batch of events in one transaction:
 *
 * 1. `numberEvents` leaves out repetitions and numbers what is left.
 * 2. `bindFlush` (flush-batch.ts) makes the parameters of the SQL function flush_events (migrations/functions/flush.sql).
 * 3. The function locks the accounts, stores what is new, applies it to members, and queues deliveries to endpoints.
 * 4. What it queued is handed over to the sender, after the commit.
 * 5. `outcomesOf` says for each event what became of it.
 *
 * A transaction that collided with another one is sent again.
 */
import { MEMBER_ID_TAKEN, skipTakenMemberIds } from '../audience/member-ids.ts'
import { sqlStateOf, violatedConstraint } from '../postgres/faults.ts'
import { type BoundStatement, type SendPipeline, statement } from '../postgres/statement.ts'
import {
  type AdmittedEvent,
  bindFlush,
  type FlushResult,
  numberEvents,
  type Outcome,
  outcomesOf,
} from './flush-batch.ts'

export interface FlushOptions {
  /** Statements of the same transaction that run first. */
  before?: BoundStatement[]
  /** Replace the connection's own limits: for rows that another transaction has locked, and for a statement. */
  lockTimeoutMs?: number
  statementTimeoutMs?: number
  handOver?: HandOver
}

/** Receives what was committed for endpoints. @param fansOut there are new rows of endpoint_fan_out */
export type HandOver = (deliveries: LeasedDelivery[], fansOut: boolean) => void

/** A row of endpoint_delivery that this process has leased until it has been sent. */
export interface LeasedDelivery {
  id: bigint
  accountId: bigint
  endpointId: bigint
}

/** Each attempt sees what the previous one collided with, so ten new collisions in a row do not happen. */
const ATTEMPTS_MAX = 10

/**
 * Commits the batch and returns each event's outcome, in the order given. An event that is in the batch twice counts once.
 * Throws DatabaseUnavailable, or the database's error, with nothing stored.
 * @param send to a connection that may send the transaction again if it is lost: events that it had committed are duplicates then
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
      if (result.leased_ids || result.fans_out) handOver?.(leasedDeliveries(result), result.fans_out ?? false)
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

/**
 * Another transaction did the same at the same moment: 40001 serialization failure, 40P01 deadlock, or a key that both
 * inserted.
 */
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

/** $1 text, $2 text: milliseconds; null keeps the connection's own. For this transaction alone. */
const setLimits = statement('set-limits')`
    select set_config('lock_timeout', coalesce($1, current_setting('lock_timeout')), true),
           set_config('statement_timeout', coalesce($2, current_setting('statement_timeout')), true)`

function limitStatements({ lockTimeoutMs, statementTimeoutMs }: FlushOptions): BoundStatement[] {
  if (lockTimeoutMs === undefined && statementTimeoutMs === undefined) return []
  return [{ statement: setLimits, values: [lockTimeoutMs ?? null, statementTimeoutMs ?? null] }]
}
