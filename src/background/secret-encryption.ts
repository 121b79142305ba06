/** Encrypts secrets that other programs have stored as plain text, which also work before that. Runs in every instance. */
import type { FastifyBaseLogger } from 'fastify'
import type { Transactions } from '../postgres/statement.ts'
import { changeSecrets } from '../secrets/change-secrets.ts'

/** A pass reads three tables, which have a row per account, endpoint and channel. */
export const ENCRYPTION_INTERVAL_MS = 20_000

/** Returns the number of encrypted values, 0 without keys. Throws DatabaseUnavailable. */
export async function encryptPlainSecrets(database: Transactions, log: FastifyBaseLogger): Promise<number> {
  if (database.secretKeys.currentId === null) return 0
  const { values, refusedRows } = await changeSecrets(database, 'selectPlain')
  if (values > 0) log.info({ values }, 'encrypted secrets that were stored as plain text')
  if (refusedRows > 0) log.warn({ rows: refusedRows }, 'PostgreSQL refused to store encrypted secrets')
  return values
}
