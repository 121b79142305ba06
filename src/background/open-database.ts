/** Opens the database of a service, and checks that the service can work with what it contains. */
import { requireLedgerErasures } from '../audience/unknown-erasures.ts'
import type { Config } from '../config/config.ts'
import { type Notices, type OpenDatabase, openForService } from '../postgres/pool/open.ts'
import type { PostgresDatabase } from '../postgres/pool/postgres-database.ts'
import { requireReadableSecrets } from '../secrets/examine-secrets.ts'
import { prepareSchema } from './maintenance/maintenance.ts'

/** Returns null if the service is configured without a database. */
export async function openDatabase(
  { database, erasureLedger }: Config,
  notices: Notices,
): Promise<OpenDatabase | null> {
  if (database.kind === 'none') return null
  const opened = await openForService(database, notices, (preparing) =>
    prepare(preparing, erasureLedger, notices),
  )
  // `ready` may reject before it is awaited.
  opened.ready.catch(() => undefined)
  return opened
}

/**
 * Returns the names of the applied migrations. Throws a FatalError if SECRETS_KEYS lacks a key, or if the database lacks erasures of the
 * ledger.
 */
async function prepare(
  database: PostgresDatabase,
  erasureLedger: string | null,
  { warn }: Notices,
): Promise<string[]> {
  const applied = await prepareSchema(database)
  await database.session(async (session) => {
    await requireReadableSecrets(session)
    if (erasureLedger !== null) await requireLedgerErasures(session, erasureLedger, warn)
  })
  return applied
}
