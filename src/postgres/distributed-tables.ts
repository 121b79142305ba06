/** Refuses a database in which Citus has distributed tables of the service (decision 35). */
import { FatalError } from '../errors.ts'
import { textArray } from './binary-array.ts'
import { type Queryable, statement } from './statement.ts'

/** Maximum number of tables that the error names, so that it stays one line. */
const NAMED_MAX = 3

/** Without Citus, a statement that mentions its catalogue fails. */
const selectHasCitus = statement('select-has-citus-catalogue')`
    select to_regclass('pg_dist_partition') is not null as exists`

/** $1 text[]: tables */
const selectDistributed = statement('select-distributed-tables')`
    select name from unnest($1::text[]) as name
     where to_regclass(name) in (select logicalrelid from pg_dist_partition) order by name`

/**
 * Change numbers are transaction ids, which the servers of Citus count independently, so delta feeds would miss changes. Throws a
 * FatalError if the catalogue of Citus has one of the tables. Citus lists reference tables there, too.
 */
export async function refuseDistributedTables(session: Queryable, tables: string[]): Promise<void> {
  const [catalogue] = await session.query<{ exists: boolean }>(selectHasCitus)
  if (catalogue?.exists !== true) return
  const distributed = await session.query<{ name: string }>(selectDistributed, [textArray(tables)])
  if (distributed.length === 0) return
  const named = distributed.slice(0, NAMED_MAX).map(({ name }) => name)
  const others = distributed.length - named.length
  throw new FatalError(
    `Citus has distributed ${named.join(', ')}${others > 0 ? ` and ${others} more` : ''}. oa-audience would lose changes and erasures there. ` +
      'Use a database in which its tables are not distributed.',
  )
}
