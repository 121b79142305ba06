/** Creates partitions ahead of time, and deletes data after its retention. */
import { warnOfEnding } from '../accounts/clients.ts'
import { requireLedgerErasures } from '../audience/erasure/compare-ledger.ts'
import type { Config } from '../config/config.ts'
import { MAINTENANCE_LOCK } from '../postgres/locks.ts'
import { type Notices, type OpenDatabase, openForService } from '../postgres/pool/open.ts'
import type { PostgresDatabase } from '../postgres/pool/postgres-database.ts'
import { migrate, refuseUnfinishedRestore } from '../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { createKeyPartitions, createPartitions, EVENTS, TRACKING_EVENTS, unlessLocked } from './partitions.ts'
import { deleteExpired, type Retention } from './retention.ts'
import { requireReadableSecrets } from './stored-secrets.ts'

export const MAINTENANCE_INTERVAL_MS = 60 * 60 * 1000

/** Other sessions queue behind our lock request, and a flush waits 600 ms. A table that a dump reads is skipped until the next run. */
const LOCK_TIMEOUT_MS = 200

const tryLock = statement('try-lock-maintenance')`select pg_try_advisory_lock($1) as is_ours`

const unlock = statement('unlock-maintenance')`select pg_advisory_unlock($1)`

const limitLockWait = statement('limit-lock-wait-of-maintenance')`set lock_timeout = ${LOCK_TIMEOUT_MS}`

export async function runMaintenance(session: Queryable, retention: Retention): Promise<void> {
  await unlessRunning(session, async () => {
    await createAllPartitions(session)
    await summarizeNewRanges(session)
    await deleteExpired(session, retention)
  })
}

/** Runs before the first event. Without a partition, events go to the default one. */
export async function makePartitions(session: Queryable): Promise<void> {
  await unlessRunning(session, () => createAllPartitions(session))
}

async function createAllPartitions(session: Queryable): Promise<void> {
  await createPartitions(session, EVENTS)
  await createPartitions(session, TRACKING_EVENTS)
  await createKeyPartitions(session)
}

async function unlessRunning(session: Queryable, work: () => Promise<void>): Promise<void> {
  const [lock] = await session.query<{ is_ours: boolean }>(tryLock, [MAINTENANCE_LOCK])
  if (lock?.is_ours !== true) return
  try {
    await session.query(limitLockWait)
    await work()
  } finally {
    await session.query(unlock, [MAINTENANCE_LOCK])
  }
}

const selectBrinIndexes = statement('select-brin-indexes')`
    select c.oid::bigint as oid
      from pg_class c join pg_am a on a.oid = c.relam
     where a.amname = 'brin' and c.relkind = 'i' and c.relnamespace = current_schema()::regnamespace
       and pg_has_role(c.relowner, 'usage')
     order by c.oid`

const summarize = statement('summarize-brin-index')`select brin_summarize_new_values($1::bigint::regclass)`

/**
 * Every query reads all page ranges without a summary. PostgreSQL summarizes new ranges only in a vacuum, which may wait until a fifth
 * of the table is new. `autosummarize` cannot be added to the index of a partitioned table.
 */
async function summarizeNewRanges(session: Queryable): Promise<void> {
  const indexes = await session.query<{ oid: bigint }>(selectBrinIndexes)
  for (const { oid } of indexes) await unlessLocked(session.query(summarize, [oid]))
}

export async function openDatabase(
  { database, erasureLedger }: Config,
  notices: Notices,
): Promise<OpenDatabase | null> {
  if (database.kind === 'none') return null
  const opened = await openForService(database, notices, (preparing) =>
    prepare(preparing, erasureLedger, notices),
  )
  // `ready` may reject before it is awaited.
  opened.ready.catch(() => undefined)
  return opened
}

/** Throws a FatalError if SECRETS_KEYS lacks a key, or if the database lacks erasures of the ledger. */
async function prepare(
  database: PostgresDatabase,
  erasureLedger: string | null,
  { warn }: Notices,
): Promise<string[]> {
  await refuseUnfinishedRestore(database)
  const applied = await migrate(database)
  await database.session(makePartitions)
  await database.session(async (session) => {
    await requireReadableSecrets(session)
    await warnOfEnding(session, warn)
    if (erasureLedger !== null) await requireLedgerErasures(session, erasureLedger, warn)
  })
  return applied
}
