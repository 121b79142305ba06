/** Reads how the stored secrets are encrypted, and which of them no key reads. */
import { keyIdOf, type SecretColumn } from '../config/secret-keys.ts'
import { FatalError } from '../errors.ts'
import type { Queryable } from '../postgres/statement.ts'
import { columnAt, pagesOf, SECRET_TABLES, type SecretRow } from './change-secrets.ts'

/** 200 rows × 3 values × 5,500 bytes, the longest that an operator can store, = 3.3 MB. */
const PAGE_ROWS = 200

interface SecretCount {
  column: SecretColumn
  /** id of the key; null: plain text */
  keyId: string | null
  values: number
}

interface UnreadableValue {
  column: SecretColumn
  id: bigint
  /** null: a notification channel */
  accountId: bigint | null
  /** id of the key that the value names; empty: it only looks encrypted */
  keyId: string
}

export interface SecretsStatus {
  /** null: no key encrypts */
  firstKeyId: string | null
  counts: SecretCount[]
  unreadable: UnreadableValue[]
}

export async function examineSecrets(database: Queryable): Promise<SecretsStatus> {
  const { secretKeys } = database
  const counts = new Map<string, SecretCount>()
  const unreadable: UnreadableValue[] = []
  for (const table of SECRET_TABLES) {
    for await (const rows of pagesOf<SecretRow>(database, table, 'selectPage', PAGE_ROWS)) {
      for (const { id, accountId, values } of rows) {
        for (const [index, stored] of values.entries()) {
          if (stored === null || stored.trim() === '') continue
          const column = columnAt(table, index)
          const keyId = keyIdOf(stored)
          const count = counts.get(`${column} ${keyId}`) ?? { column, keyId, values: 0 }
          counts.set(`${column} ${keyId}`, { ...count, values: count.values + 1 })
          if (keyId !== null && secretKeys.decryptOrNull(column, id, stored) === null)
            unreadable.push({ column, id, accountId, keyId })
        }
      }
    }
  }
  return { firstKeyId: secretKeys.currentId, counts: [...counts.values()], unreadable }
}

/** Throws a FatalError if a stored value cannot be read, because otherwise its account would fail unnoticed. */
export async function requireReadableSecrets(database: Queryable): Promise<void> {
  const { unreadable } = await examineSecrets(database)
  if (unreadable.length > 0)
    throw new FatalError(explainUnreadable(unreadable.length, database.secretKeys.currentId !== null))
}

export function explainUnreadable(values: number, hasKeys: boolean): string {
  const variable = hasKeys ? 'no key of SECRETS_KEYS reads' : 'SECRETS_KEYS is not set, so nothing reads'
  return (
    `${variable} ${values} stored ${values === 1 ? 'secret' : 'secrets'}. Add the missing key to SECRETS_KEYS, or store these secrets ` +
    'again. "oa-audience secrets status" lists them.'
  )
}
