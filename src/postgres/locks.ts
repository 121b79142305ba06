/** The numbers of all advisory locks, arbitrary but fixed. migrations/functions/locks.sql has those that SQL functions take. */
import { type Queryable, statement } from './statement.ts'

export const SERVICE_LOCK = 7_301_001
export const MIGRATION_LOCK = 7_301_002
/** Shared by the users of the embedded server. */
export const USER_LOCK = 7_301_003
export const MAINTENANCE_LOCK = 7_301_004
/** The session of one instance at a time, which exports the backlogs of endpoints. */
export const BACKLOG_LOCK = 7_301_009
/** One transaction at a time announces statuses. A lock of the row of notification_watch would also delay the heartbeat. */
export const PASS_LOCK = 7_301_008
/** Runs over fleet files. Otherwise two runs could add the same account. */
export const APPLY_LOCK = 730_201
/** Changes of operators. Otherwise two owners could remove each other. */
export const OPERATORS_LOCK = 730_204

/** $1 bigint: number of the lock */
const lock = statement('take-lock')`select pg_advisory_xact_lock($1)`

/** Waits for the lock, and holds it until the transaction ends. */
export async function takeLock(transaction: Queryable, number: number): Promise<void> {
  await transaction.query(lock, [number])
}
