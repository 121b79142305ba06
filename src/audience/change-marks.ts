/** Marks which changes had ended at which time, so that a delta feed can begin at a time. */
import { PREPARE_WRITES } from '../postgres/connection-settings.ts'
import type { Queryable, Statement } from '../postgres/statement.ts'

/** A feed begins up to this much earlier than necessary. */
export const MARK_INTERVAL_MS = 10_000

/**
 * $1 int: milliseconds that a new mark keeps from the newest one: every instance sends this. The horizon is that of the
 * statement's snapshot, which is older than the clock when it is read: a mark may promise too little, never too much. While a
 * clock that stepped back is behind the newest mark, none is added: feeds then begin at the newest one before their time.
 */
const addMark: Statement = {
  name: 'add-change-mark',
  text: `
    insert into change_mark (marked_at, change)
    select clock_timestamp(), change_horizon()
     where not exists (select from change_mark where marked_at > clock_timestamp() - $1::int * interval '1 millisecond')`,
}

export async function markChanges(database: Queryable): Promise<void> {
  // A dump that is restored into the same database does not end connections.
  await database.query(PREPARE_WRITES)
  await database.query(addMark, [MARK_INTERVAL_MS / 2])
}
