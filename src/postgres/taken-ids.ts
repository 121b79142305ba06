/** Other programs may load rows with ids of their own: then the next ids of ours are taken already. */
import type { Queryable } from './statement.ts'

/** Ids above this are left alone: whoever made them did not count up to there. */
const ID_MAX = 2n ** 62n

/**
 * Moves a table's own ids past those that are taken, never back.
 * @param where which rows count, with `values` from $2 on
 */
export async function skipTakenIds(
  database: Queryable,
  table: string,
  where = 'true',
  values: unknown[] = [],
): Promise<void> {
  const sequence = `pg_get_serial_sequence('${table}', 'id')`
  await database.query(
    `select setval(${sequence}, greatest(max(id), nextval(${sequence}))) from ${table} where id < $1 and ${where}`,
    [ID_MAX, ...values],
  )
}
