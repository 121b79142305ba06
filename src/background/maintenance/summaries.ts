/** Summarizes the BRIN indexes. Every query reads all page ranges without a summary. */
import { type Queryable, statement } from '../../postgres/statement.ts'
import { unlessLocked } from './partitions.ts'

const selectBrinIndexes = statement('select-brin-indexes')`
    select c.oid::bigint as oid
      from pg_class c join pg_am a on a.oid = c.relam
     where a.amname = 'brin' and c.relkind = 'i' and c.relnamespace = current_schema()::regnamespace
       and pg_has_role(c.relowner, 'usage')
     order by c.oid`

/** $1 bigint: oid of a BRIN index. */
const summarize = statement('summarize-brin-index')`select brin_summarize_new_values($1::bigint::regclass)`

/**
 * Summarizes the pages that were stored since the last run. PostgreSQL itself summarizes new ranges only in a vacuum, which may wait
 * until a fifth of the table is new. `autosummarize` cannot be added to the index of a partitioned table, and drops requests beyond
 * 256. Skips an index whose table a vacuum has locked.
 */
export async function summarizeNewRanges(session: Queryable): Promise<void> {
  const indexes = await session.query<{ oid: bigint }>(selectBrinIndexes)
  for (const { oid } of indexes) await unlessLocked(session.query(summarize, [oid]))
}
