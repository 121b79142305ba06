/** Checkpoints (rows of change_mark) store which changes had ended at which time, so that a delta feed can begin at a time. */
import { PREPARE_WRITES } from '../postgres/pool/connection-settings.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** A feed begins up to this much earlier than necessary. */
export const CHECKPOINT_INTERVAL_MS = 10_000

/** A checkpoint farther ahead is of a wrong clock: see insertCheckpoint. */
const AHEAD_MAX_MS = 3_600_000

/**
 * $1 int: minimum milliseconds between checkpoints, because every instance adds them. $2 int: AHEAD_MAX_MS.
 *
 * The horizon is that of the statement's snapshot, which is older than clock_timestamp(). So no change below it ended later.
 *
 * If the clock steps back, clients have times that it will show again. So none is added while a checkpoint is less than an hour
 * ahead, and feeds begin at the newest one before their time. If all checkpoints ahead are farther away, the clock had jumped ahead
 * and is right again, so they are added. A clock before all checkpoints is wrong, and adds none.
 */
const insertCheckpoint = statement('add-change-mark')`
    insert into change_mark (marked_at, change)
    select clock_timestamp(), change_horizon()
     where not exists (select from change_mark
                        where marked_at > clock_timestamp() - $1::int * interval '1 millisecond'
                          and marked_at <= clock_timestamp() + $2::int * interval '1 millisecond')
       and (exists (select from change_mark where marked_at <= clock_timestamp()) or not exists (select from change_mark))`

const prepareWrites = statement('prepare-writes')`${PREPARE_WRITES}`

export async function addCheckpoint(database: Queryable): Promise<void> {
  // Again for each checkpoint, because a dump may be restored while the connection is open.
  await database.query(prepareWrites)
  await database.query(insertCheckpoint, [CHECKPOINT_INTERVAL_MS / 2, AHEAD_MAX_MS])
}
