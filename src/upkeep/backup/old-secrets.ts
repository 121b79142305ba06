/**
 * Removes secrets in plain text from the files of the embedded server. Another program may have inserted a secret before the service
 * encrypted it. The old row stays in the file until its space is used again, and samples of the column stay in pg_statistic.
 * VACUUM FULL writes new files with the current rows only. The tables with secrets are small, so it takes milliseconds.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { LOCK_TIMEOUT, sqlStateOf } from '../../postgres/faults.ts'
import { type Queryable, type Statement, statement } from '../../postgres/statement.ts'
import { countPlainRows } from '../secrets.ts'

/** Flushes queue behind our lock request, and their own lock_timeout is 600 ms. So our request must end earlier. */
const LOCK_TIMEOUT_MS = 300
/** 5 attempts × (300 ms + 100 ms pause) = 2 s per table. */
const LOCK_ATTEMPTS_MAX = 5
const LOCK_PAUSE_MS = 100
/** VACUUM keeps replaced rows that an older transaction may still read, so wait for such transactions. */
const OLD_TRANSACTIONS_MAX_MS = 5_000
const POLL_MS = 50

const limitLockWait = statement('limit-lock-wait-of-backup')`set lock_timeout = ${LOCK_TIMEOUT_MS}`
const removeLimit = statement('remove-lock-limit-of-backup')`set lock_timeout = 0`

const selectNextId = statement('select-next-transaction-for-backup')`
    select pg_snapshot_xmax(pg_current_snapshot())::text as id`

/** $1 xid8: next transaction id. Returns whether an older transaction may still read replaced rows. */
const selectOldTransaction = statement('select-old-transaction-for-backup')`
    select exists (select from pg_stat_activity
                    where pid <> pg_backend_pid()
                      and greatest(age(backend_xmin), age(backend_xid)) > age($1::xid8::xid)) as is_open`

/** ANALYZE replaces the samples before the rewrite of pg_statistic drops the old ones. */
const REWRITES: Array<[table: string, rewrite: Statement]> = [
  ['official_account', statement('rewrite-accounts')`vacuum (full, analyze) official_account`],
  ['endpoint', statement('rewrite-endpoints')`vacuum (full, analyze) endpoint`],
  ['notification_channel', statement('rewrite-channels')`vacuum (full, analyze) notification_channel`],
  ['pg_statistic', statement('rewrite-statistics')`vacuum full pg_statistic`],
]

export async function removeOldSecrets(session: Queryable, warn: (text: string) => void): Promise<void> {
  const rows = await countPlainRows(session)
  if (rows > 0)
    warn(`${rows} rows contain secrets in plain text. Run "oa-audience secrets rotate" before the backup.`)
  if (!(await haveOldTransactionsEnded(session)))
    warn(
      'a transaction has been open for more than 5 s, so the files may contain secrets that were replaced since it began',
    )
  await session.query(limitLockWait)
  for (const [table, rewrite] of REWRITES) {
    if (!(await hasRewritten(session, rewrite)))
      warn(`${table} is locked by another program, so its file may contain secrets that were replaced`)
  }
  await session.query(removeLimit)
}

async function hasRewritten(session: Queryable, rewrite: Statement): Promise<boolean> {
  for (let attempt = 1; attempt <= LOCK_ATTEMPTS_MAX; attempt += 1) {
    try {
      await session.query(rewrite)
      return true
    } catch (error) {
      if (sqlStateOf(error) !== LOCK_TIMEOUT) throw error
      await sleep(LOCK_PAUSE_MS)
    }
  }
  return false
}

async function haveOldTransactionsEnded(session: Queryable): Promise<boolean> {
  const [next] = await session.query<{ id: string }>(selectNextId)
  const deadline = performance.now() + OLD_TRANSACTIONS_MAX_MS
  while (performance.now() < deadline) {
    const [old] = await session.query<{ is_open: boolean }>(selectOldTransaction, [next?.id])
    if (old?.is_open !== true) return true
    await sleep(POLL_MS)
  }
  return false
}
