/** Positions in the write-ahead log. A replica must have replayed a position before it may answer. */
import { type Row, type Statement, statement } from './statement.ts'

/** Bytes since the beginning of the log. */
export type WalPosition = bigint

/** No replica ever has this position, so the primary answers. */
export const PRIMARY_ONLY: WalPosition = 2n ** 63n - 1n

/** Distinguishes a copy of the primary from other servers, whose positions mean other commits. */
export interface Lineage {
  /** Each promotion of a standby begins another timeline. Positions of different timelines cannot be compared. */
  timeline: string
  /**
   * The newest mark of the delta feed (change-marks.ts) that is not of a clock that was ahead. A copy of this database that has replayed the position has the mark, and
   * another database does not. A former primary and its replicas lack the marks of later timelines. Null: there is none yet.
   */
  mark: string | null
}

/** The position and lineage of the primary at one time. */
export interface PrimaryState extends Lineage {
  /** By `performance.now()`, before the query was sent: the position includes every commit until then. */
  takenAtMs: number
  position: WalPosition
}

/** Sends a statement to the primary. */
export type AskPrimary = <R extends Row>(statement: Statement) => Promise<R[]>

/**
 * Reads the flush position: an acknowledged commit has been flushed, and positions behind it may wait for the next commit. The
 * name of a WAL file begins with the timeline in 8 hexadecimal digits.
 */
const selectPrimaryState = statement('primary-state')`
    select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint as position,
           left(pg_walfile_name(pg_current_wal_flush_lsn()), 8) as timeline,
           (select max(marked_at) from change_mark where marked_at <= clock_timestamp()) as mark`

export async function readPrimaryState(ask: AskPrimary): Promise<PrimaryState> {
  const takenAtMs = performance.now()
  const [row] = await ask<Row & Omit<PrimaryState, 'takenAtMs'>>(selectPrimaryState)
  if (row === undefined) throw new Error('the primary returned no position')
  return { ...row, takenAtMs }
}

/** The position that a replica has replayed, and whether it is a copy of the primary. */
export interface ReplicaState {
  position: WalPosition
  isCopy: boolean
}

/**
 * $1 timestamptz: mark; $2 text: timeline. A promoted replica no longer replays, and DATABASE_READ_URL may name the primary. Such a
 * server accepts writes, so its flush position counts, and its timeline is compared. A standby cannot name the timeline it replays.
 */
export const selectReplicaState = statement('replica-state')`
    select pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                                else pg_current_wal_flush_lsn() end, '0/0')::bigint as position,
           exists (select from change_mark where marked_at = $1::timestamptz)
             and case when pg_is_in_recovery() then true
                      else left(pg_walfile_name(pg_current_wal_flush_lsn()), 8) = $2::text end as is_copy`

export interface ReplicaStateRow extends Record<string, unknown> {
  position: bigint | null
  is_copy: boolean
}

export function replicaStateOf(row: ReplicaStateRow | undefined): ReplicaState {
  return { position: row?.position ?? -1n, isCopy: row?.is_copy === true }
}
