/** Other programs may insert rows with explicit ids, so the next generated id may be taken. */
import { violatedConstraint } from '../faults.ts'
import { type Queryable, type Row, type Statement, statement, type Transactions } from '../statement.ts'

/** Moves a table's sequence past the stored ids, never back. Ids above 2^62 are ignored, because no sequence counts that far. */
const SKIP_TAKEN = {
  organization: statement('skip-taken-ids-organization')`
      select setval(pg_get_serial_sequence('organization', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('organization', 'id'))))
        from organization where id < 4611686018427387904`,
  official_account: statement('skip-taken-ids-official-account')`
      select setval(pg_get_serial_sequence('official_account', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('official_account', 'id'))))
        from official_account where id < 4611686018427387904`,
  api_client: statement('skip-taken-ids-api-client')`
      select setval(pg_get_serial_sequence('api_client', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('api_client', 'id'))))
        from api_client where id < 4611686018427387904`,
  api_key: statement('skip-taken-ids-api-key')`
      select setval(pg_get_serial_sequence('api_key', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('api_key', 'id'))))
        from api_key where id < 4611686018427387904`,
  endpoint: statement('skip-taken-ids-endpoint')`
      select setval(pg_get_serial_sequence('endpoint', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('endpoint', 'id'))))
        from endpoint where id < 4611686018427387904`,
}

export type ProvisionedTable = keyof typeof SKIP_TAKEN

/** $1 text: table */
const selectNextId = statement('select-next-id')`select nextval(pg_get_serial_sequence($1, 'id')) as id`

/**
 * Inserts a row with a generated id. If the id is taken, the sequence moves past the stored ids and the insert is retried. Inside a
 * transaction, which the failure aborts, this throws the violation for transactionWithFreeIds.
 * @param valuesOf returns the parameters of `insert`; secrets are encrypted for the id of their row
 */
export async function insertWithFreeId<R extends Row>(
  database: Queryable,
  table: ProvisionedTable,
  insert: Statement,
  valuesOf: (id: bigint) => unknown[],
): Promise<R[]> {
  const insertNext = async () => {
    const [next] = await database.query<{ id: bigint }>(selectNextId, [table])
    return database.query<R>(insert, valuesOf((next as { id: bigint }).id))
  }
  try {
    return await insertNext()
  } catch (error) {
    if (tableOfTakenId(error) !== table) throw error
    const isMoved = await database.query(SKIP_TAKEN[table]).then(
      () => true,
      () => false,
    )
    if (!isMoved) throw error
    return insertNext()
  }
}

/** Runs a transaction that inserts rows with generated ids. Each table may abort it once. */
export async function transactionWithFreeIds<T>(
  database: Transactions,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  const moved = new Set<ProvisionedTable>()
  for (;;) {
    try {
      return await database.transaction(work)
    } catch (error) {
      const table = tableOfTakenId(error)
      if (table === null || moved.has(table)) throw error
      await database.query(SKIP_TAKEN[table])
      moved.add(table)
    }
  }
}

function tableOfTakenId(error: unknown): ProvisionedTable | null {
  const table = violatedConstraint(error)?.replace(/_pkey$/, '')
  return table !== undefined && Object.hasOwn(SKIP_TAKEN, table) ? (table as ProvisionedTable) : null
}
