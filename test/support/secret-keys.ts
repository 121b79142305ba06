/** Databases whose secrets are encrypted. */
import { randomBytes } from 'node:crypto'
import { SecretKeys } from '../../src/config/secret-keys.ts'
import { examineSecrets, type SecretsStatus } from '../../src/upkeep/stored-secrets.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { createTestDatabase, openDatabase } from './database.ts'

/** One key as SECRETS_KEYS has it. */
export const newKey = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`

/**
 * A database of the test's own. `database` has the keys. `plain` has none, like other programs.
 * @param keys SECRETS_KEYS
 */
export async function createEncrypted(keys = newKey('2026a')) {
  const { database: plain, connection, env } = await createTestDatabase()
  const withKeys = (text: string) => openDatabase(connection, null, SecretKeys.parse(text))
  return {
    ...{ plain, connection, keys, withKeys, database: withKeys(keys) },
    env: { ...env, SECRETS_KEYS: keys },
  }
}

/** Values by key, `plain` for plain text. */
export async function valuesByKey(database: TextDatabase): Promise<Record<string, number>> {
  return byKey(await examineSecrets(database))
}

function byKey({ counts }: SecretsStatus): Record<string, number> {
  const sums: Record<string, number> = {}
  for (const { keyId, values } of counts) sums[keyId ?? 'plain'] = (sums[keyId ?? 'plain'] ?? 0) + values
  return sums
}
