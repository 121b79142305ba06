/** Other programs may load rows with ids of their own, so the next generated id may be taken. */
import { violatedConstraint } from './faults.ts'
import type { Queryable, Row } from './statement.ts'

/** Moves a table's generated ids past the stored ones, never back. Ids above 2^62 are left alone: no program counts that far. */
const SKIP_TAKEN = {
  organization: `
    select setval(pg_get_serial_sequence('organization', 'id'),
                  greatest(max(id), nextval(pg_get_serial_sequence('organization', 'id'))))
      from organization where id < 4611686018427387904`,
  official_account: `
    select setval(pg_get_serial_sequence('official_account', 'id'),
                  greatest(max(id), nextval(pg_get_serial_sequence('official_account', 'id'))))
      from official_account where id < 4611686018427387904`,
  api_client: `
    select setval(pg_get_serial_sequence('api_client', 'id'),
                  greatest(max(id), nextval(pg_get_serial_sequence('api_client', 'id'))))
      from api_client where id < 4611686018427387904`,
  api_key: `
    select setval(pg_get_serial_sequence('api_key', 'id'),
                  greatest(max(id), nextval(pg_get_serial_sequence('api_key', 'id'))))
      from api_key where id < 4611686018427387904`,
  endpoint: `
    select setval(pg_get_serial_sequence('endpoint', 'id'),
                  greatest(max(id), nextval(pg_get_serial_sequence('endpoint', 'id'))))
      from endpoint where id < 4611686018427387904`,
} as const

export type ProvisionedTable = keyof typeof SKIP_TAKEN

/**
 * Inserts a row with a generated id. If the id is taken, the sequence moves past the stored ids and the insert is retried. Inside
 * a transaction the first failure would abort it.
 */
export async function insertWithFreeId<R extends Row>(
  database: Queryable,
  table: ProvisionedTable,
  statement: string,
  values: unknown[],
): Promise<R[]> {
  try {
    return await database.query<R>(statement, values)
  } catch (error) {
    if (violatedConstraint(error) !== `${table}_pkey`) throw error
    await database.query(SKIP_TAKEN[table])
    return database.query<R>(statement, values)
  }
}
