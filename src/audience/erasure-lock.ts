/** The lock of an account that keeps erasures and writers of events apart. Its functions are in migrations/functions/flush.sql. */
import type { Statement } from '../postgres/statement.ts'

/** $1 bigint: the account. Waits for its flushes in progress, and makes others wait for this transaction. */
export const lockOutFlushes: Statement = { name: 'lock-out-flushes', text: 'select lock_out_flushes($1)' }

/**
 * $1 bigint: the account. Erasures wait for this transaction, and it sees those that have committed. Send it before any row is
 * locked, because locks are taken in one order everywhere.
 */
export const lockOutErasures: Statement = {
  name: 'lock-out-erasures',
  text: `select lock_out_erasures(array[$1::bigint], '{}')`,
}
