/** Positions in the write-ahead log: what a replica must have replayed before it may answer. */
import type { Row, Statement } from './statement.ts'

/** Bytes since the beginning of the log. */
export type WalPosition = bigint

/** No replica ever has this position, so the primary answers. */
export const PRIMARY_ONLY: WalPosition = 2n ** 63n - 1n

/** By what a copy of the primary is distinguished from other servers, whose positions mean something else. */
export interface Lineage {
  /** Each promotion of a standby begins another one. Positions of different timelines cannot be compared. */
  timeline: string
  /**
   * The newest mark of the delta feed (change-marks.ts). A copy of this database that has replayed the position has it. Another
   * database does not have it. A former primary and its replicas do not have those of later timelines. Null: there is none yet.
   */
  mark: string | null
}

/** A moment of the primary. */
export interface PrimaryState extends Lineage {
  /** Before the query was sent, by `performance.now()`: the position covers what was committed until then. */
  takenAtMs: number
  position: WalPosition
}

/** Sends a statement to the primary. */
export type AskPrimary = <R extends Row>(statement: Statement) => Promise<R[]>

/**
 * The flush position: a commit has been flushed when it is answered, while later positions wait for the next one. The name of a
 * WAL file begins with the timeline in 8 hexadecimal digits.
 */
const selectPrimaryState: Statement = {
  name: 'primary-state',
  text: `
    select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint as position,
           left(pg_walfile_name(pg_current_wal_flush_lsn()), 8) as timeline,
           (select max(marked_at) from change_mark) as mark`,
}

export async function readPrimaryState(ask: AskPrimary): Promise<PrimaryState> {
  const takenAtMs = performance.now()
  const [row] = await ask<Row & Omit<PrimaryState, 'takenAtMs'>>(selectPrimaryState)
  if (row === undefined) throw new Error('the primary names no position')
  return { ...row, takenAtMs }
}

/** What a replica has. */
export interface ReplicaState {
  position: WalPosition
  isCopy: boolean
}

/**
 * $1 timestamptz: mark; $2 text: timeline. A replica that was promoted stops replaying, and a primary may serve reads, too: then
 * what it has flushed counts, and it names its timeline. One that still replays cannot name it.
 */
export const selectReplicaState: Statement = {
  name: 'replica-state',
  text: `
    select pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                                else pg_current_wal_flush_lsn() end, '0/0')::bigint as position,
           exists (select from change_mark where marked_at = $1::timestamptz)
             and case when pg_is_in_recovery() then true
                      else left(pg_walfile_name(pg_current_wal_flush_lsn()), 8) = $2::text end as is_copy`,
}

export interface ReplicaStateRow extends Record<string, unknown> {
  position: bigint | null
  is_copy: boolean
}

export function replicaStateOf(row: ReplicaStateRow | undefined): ReplicaState {
  return { position: row?.position ?? -1n, isCopy: row?.is_copy === true }
}
