/** Refuses a database in which Citus has distributed tables of the service (decision 35). */
import { FatalError } from '../../errors.ts'
import { textArray } from '../binary-array.ts'
import { type Queryable, statement } from '../statement.ts'

/** Without Citus, a statement that refers to its catalogue fails. */
const selectHasCitus = statement('select-has-citus-catalogue')`
    select to_regclass('pg_dist_partition') is not null as exists`

/** $1 text[]: tables */
const selectDistributed = statement('select-distributed-table')`
    select min(name) as name from unnest($1::text[]) as name
     where to_regclass(name) in (select logicalrelid from pg_dist_partition) having count(*) > 0`

/**
 * Change numbers are transaction ids, which each server of Citus counts independently, so delta feeds would miss changes. Throws a
 * FatalError if the catalogue of Citus has one of the tables. Citus lists reference tables there too.
 */
export async function refuseDistributedTables(session: Queryable, tables: string[]): Promise<void> {
  const [catalogue] = await session.query<{ exists: boolean }>(selectHasCitus)
  if (catalogue?.exists !== true) return
  const [distributed] = await session.query<{ name: string }>(selectDistributed, [textArray(tables)])
  if (distributed === undefined) return
  throw new FatalError(
    `Citus has distributed ${distributed.name}. oa-audience would lose changes and erasures there. ` +
      'Use a database in which its tables are not distributed.',
  )
}
