/** Maintenance, which the service runs every hour. */
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { runMaintenance } from '../../src/upkeep/maintenance.ts'
import { load } from './load.ts'

const KEEP = { retentionDays: 90, deduplicationDays: 400, trackingRetentionDays: 7, auditRetentionDays: 400 }

/** With the defaults of the configuration, or other days. */
export const maintain = (database: PostgresDatabase, days: Partial<typeof KEEP> = {}): Promise<void> =>
  database.session((session) => runMaintenance(session, { ...KEEP, ...days }))

export async function partitionsOf(database: PostgresDatabase, table: string): Promise<string[]> {
  const rows = await load<{ name: string }>(
    database,
    `select inhrelid::regclass::text as name from pg_inherits where inhparent = '${table}'::regclass order by name`,
  )
  return rows.map(({ name }) => name)
}
