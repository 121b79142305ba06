/** Whether a second disk has what was acknowledged. */
import { type Queryable, statement } from '../statement.ts'

/**
 * - `synchronous`: a commit waits until the disk of a standby has it.
 * - `asynchronous`: a standby follows, but commits do not wait for its disk.
 * - `behind`: the same, and the standby has not received the last BEHIND_MAX_BYTES.
 * - `missing`: no standby follows. If commits wait for one, none of them ends.
 * - `unknown`: the database user may not see the standbys.
 */
export const REPLICATION_STATES = ['synchronous', 'asynchronous', 'behind', 'missing', 'unknown'] as const
export type ReplicationState = (typeof REPLICATION_STATES)[number]

export interface Replication {
  state: ReplicationState
  /** Whether commits wait for a standby, connected or not. */
  waits: boolean
  standbys: number
  /** Bytes of WAL that the standby with the most has not on disk. */
  behindBytes: number
}

/** One WAL segment. A standby on a network that carries the load is behind by kilobytes. */
export const BEHIND_MAX_BYTES = 16 * 1024 * 1024

/**
 * Without the role pg_monitor, all columns of a standby but its process are null. remote_write and local end the wait before
 * a standby's disk has the commit.
 */
const selectReplication = statement('replication')`
    select current_setting('synchronous_standby_names') <> '' as waits,
           current_setting('synchronous_commit') in ('on', 'remote_apply') as waits_for_disk,
           count(*)::int as standbys,
           count(*) filter (where state is null)::int as hidden,
           count(*) filter (where state = 'streaming')::int as streaming,
           count(*) filter (where state = 'streaming' and sync_state in ('sync', 'quorum'))::int as synchronous,
           coalesce(min(pg_wal_lsn_diff(case when not pg_is_in_recovery() then pg_current_wal_lsn() end, flush_lsn))
                    filter (where state = 'streaming'), 0)::float8 as behind_bytes
      from pg_stat_replication`

interface Answer extends Record<string, unknown> {
  waits: boolean
  waits_for_disk: boolean
  standbys: number
  hidden: number
  streaming: number
  synchronous: number
  behind_bytes: number
}

/** Null if no standby is expected: DATABASE_URL names one host, and commits wait for no standby. */
export async function readReplication(
  database: Queryable,
  hasSeveralHosts: boolean,
): Promise<Replication | null> {
  const [answer] = await database.query<Answer>(selectReplication)
  if (answer === undefined || !(hasSeveralHosts || answer.waits)) return null
  const { waits, standbys, behind_bytes: behindBytes } = answer
  return { state: stateOf(answer), waits, standbys, behindBytes }
}

function stateOf(answer: Answer): ReplicationState {
  if (answer.hidden > 0) return 'unknown'
  if (answer.streaming === 0) return 'missing'
  if (answer.waits && answer.synchronous === 0) return 'missing'
  if (answer.waits && answer.waits_for_disk) return 'synchronous'
  return answer.behind_bytes > BEHIND_MAX_BYTES ? 'behind' : 'asynchronous'
}
