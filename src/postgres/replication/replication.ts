/** Reads whether acknowledged commits are on a second disk. */
import { type Queryable, statement } from '../statement.ts'

/**
 * - `synchronous`: a commit waits until the disk of a standby has it.
 * - `asynchronous`: a standby follows, but commits do not wait for its disk.
 * - `behind`: like `asynchronous`, but the standby lacks more than BEHIND_MAX_BYTES.
 * - `missing`: no standby follows. If commits wait for one, they hang.
 * - `unknown`: the database user lacks the privilege to see the standbys.
 */
export const REPLICATION_STATES = ['synchronous', 'asynchronous', 'behind', 'missing', 'unknown'] as const
export type ReplicationState = (typeof REPLICATION_STATES)[number]

export interface Replication {
  state: ReplicationState
  /** Whether commits wait for a standby, connected or not. */
  waits: boolean
  standbys: number
  /** WAL that the most up-to-date standby does not have on disk. */
  behindBytes: number
}

/** One WAL segment. On a sufficient network, a standby is kilobytes behind. */
export const BEHIND_MAX_BYTES = 16 * 1024 * 1024

/** Without the role pg_monitor, `state` is null. remote_write and local do not wait for a standby's disk. */
const selectReplication = statement('replication')`
    select current_setting('synchronous_standby_names') <> '' as waits,
           current_setting('synchronous_commit') in ('on', 'remote_apply') as "waitsForDisk",
           count(*)::int as standbys,
           count(*) filter (where state is null)::int as hidden,
           count(*) filter (where state = 'streaming')::int as streaming,
           count(*) filter (where state = 'streaming' and sync_state in ('sync', 'quorum'))::int as synchronous,
           coalesce(min(pg_wal_lsn_diff(case when not pg_is_in_recovery() then pg_current_wal_lsn() end, flush_lsn))
                    filter (where state = 'streaming'), 0)::float8 as "behindBytes"
      from pg_stat_replication`

type StandbyRow = Omit<Replication, 'state'> & {
  waitsForDisk: boolean
  hidden: number
  streaming: number
  synchronous: number
}

/** Returns null if no standby is expected: DATABASE_URL has one host, and commits do not wait for a standby. */
export async function readReplication(
  database: Queryable,
  hasSeveralHosts: boolean,
): Promise<Replication | null> {
  const [row] = await database.query<StandbyRow>(selectReplication)
  if (row === undefined || !(hasSeveralHosts || row.waits)) return null
  const { waits, standbys, behindBytes } = row
  return { state: stateOf(row), waits, standbys, behindBytes }
}

function stateOf(row: StandbyRow): ReplicationState {
  if (row.hidden > 0) return 'unknown'
  if (row.streaming === 0) return 'missing'
  if (row.waits && row.synchronous === 0) return 'missing'
  if (row.waits && row.waitsForDisk) return 'synchronous'
  return row.behindBytes > BEHIND_MAX_BYTES ? 'behind' : 'asynchronous'
}

/**
 * A transaction that found its work already done calls it. It wrote nothing, so its commit would not wait, although the work may still be
 * only on the primary's disk. After this message, the commit waits for both.
 */
export const waitForStandby = statement('wait-for-standby')`
    select case when current_setting('synchronous_standby_names') <> ''
                then pg_logical_emit_message(true, 'oa-audience', '') end`
