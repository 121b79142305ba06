/** Marks which changes had ended at which time, so that a delta feed can begin at a time. */
import { PREPARE_WRITES } from '../postgres/pool/connection-settings.ts'
import { type Queryable, statement } from '../postgres/statement.ts'

/** A feed begins up to this much earlier than necessary. */
export const MARK_INTERVAL_MS = 10_000

/** A mark that is farther ahead than this is of a clock that was wrong: see addMark. */
const AHEAD_MAX_MS = 3_600_000

/**
 * $1 int: milliseconds that a new mark keeps from the newest one: every instance sends this. $2 int: AHEAD_MAX_MS. The horizon is
 * that of the statement's snapshot, which is older than the clock when it is read: a mark may promise too little, never too much.
 *
 * If a clock steps back, clients have times that it will show again. So no mark is added while one is less than an hour ahead:
 * feeds then begin at the newest one before their time. If all marks ahead are farther away, the clock had jumped ahead and is right
 * now. Marks are added again until an hour before those marks. A clock that is before all marks is wrong, and adds none.
 */
const addMark = statement('add-change-mark')`
    insert into change_mark (marked_at, change)
    select clock_timestamp(), change_horizon()
     where not exists (select from change_mark
                        where marked_at > clock_timestamp() - $1::int * interval '1 millisecond'
                          and marked_at <= clock_timestamp() + $2::int * interval '1 millisecond')
       and (exists (select from change_mark where marked_at <= clock_timestamp()) or not exists (select from change_mark))`

const prepareWrites = statement('prepare-writes')`${PREPARE_WRITES}`

export async function markChanges(database: Queryable): Promise<void> {
  // A dump that is restored into the same database does not end connections.
  await database.query(prepareWrites)
  await database.query(addMark, [MARK_INTERVAL_MS / 2, AHEAD_MAX_MS])
}
