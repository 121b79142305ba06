/** Creates partitions ahead of time, and deletes data after its retention. */
import type { Database } from '../../postgres/database.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { countFollows } from './follow-counts.ts'
import { createKeyPartitions } from './key-partitions.ts'
import { createPartitions, EVENTS, TRACKING_EVENTS } from './partitions.ts'
import { deleteExpired, type Retention } from './retention.ts'
import { summarizeNewRanges } from './summaries.ts'

export const MAINTENANCE_INTERVAL_MS = 60 * 60 * 1000

/** Arbitrary but fixed. This advisory lock lets one instance at a time run maintenance. */
const MAINTENANCE_LOCK = 7_301_004

/**
 * Other sessions queue behind our lock request, so it times out much earlier than a flush, which waits 600 ms. A table that is in
 * use, for example by a dump, is skipped until the next run.
 */
const LOCK_TIMEOUT_MS = 200

/** $1 bigint: MAINTENANCE_LOCK */
const tryLock = statement('try-lock-maintenance')`select pg_try_advisory_lock($1) as is_ours`

/** $1 bigint: MAINTENANCE_LOCK */
const unlock = statement('unlock-maintenance')`select pg_advisory_unlock($1)`

const limitLockWait = statement('limit-lock-wait-of-maintenance')`set lock_timeout = ${LOCK_TIMEOUT_MS}`

/** Runs maintenance, unless another instance is running it. */
export async function runMaintenance(session: Queryable, retention: Retention): Promise<void> {
  await unlessRunning(session, async () => {
    await createAllPartitions(session)
    await summarizeNewRanges(session)
    await countFollows(session)
    await deleteExpired(session, retention)
  })
}

/** Prepares the schema for a service. Returns the names of the applied migrations. */
export async function prepareSchema(database: Database): Promise<string[]> {
  const applied = await migrate(database)
  await database.session(makePartitions)
  return applied
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
