/**
 * What keeps erasure and flushes apart. Erasure takes the lock of its account exclusively before it looks for
 * what to erase; a flush takes the locks of its accounts shared, in a statement before its own. So a flush
 * either commits first, and what it stored is erased, or begins after the erasure, and sees it.
 *
 * The order of locks is the same everywhere: accounts, then event keys, then members, then tracked activity,
 * each in key order.
 */
import type { Statement } from '../postgres/statement.ts'

const LOCK_CLASS = 7301
/** Two accounts that share a number only wait for each other without need. */
const lockKey = (account: string) => `(${account} % 2147483647)::int`

/** Takes one account's id. */
export const lockOutFlushes: Statement = {
  name: 'lock-out-flushes',
  text: `select pg_advisory_xact_lock(${LOCK_CLASS}, ${lockKey('$1::bigint')})`,
}

/** Takes an array of account ids, and an array of those of them for which the flush itself erases content (unsend). */
export const lockOutErasures: Statement = {
  name: 'lock-out-erasures',
  text: `
    select case when account = any ($2::bigint[])
           then pg_advisory_xact_lock(${LOCK_CLASS}, ${lockKey('account')})
           else pg_advisory_xact_lock_shared(${LOCK_CLASS}, ${lockKey('account')}) end
      from (select distinct account from unnest($1::bigint[]) as account order by account) sorted`,
}
