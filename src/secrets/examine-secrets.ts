/** Reads how the stored secrets are encrypted, and which of them no key reads. */
import { keyIdOf, type SecretColumn } from '../config/secret-keys.ts'
import { FatalError } from '../errors.ts'
import type { Queryable } from '../postgres/statement.ts'
import { columnAt, pagesOf, SECRET_TABLES, type SecretRow } from './change-secrets.ts'

/** 200 rows × 3 values × 5,500 bytes, the longest that an operator can store, = 3.3 MB. */
const PAGE_ROWS = 200
/** Limits the length of the error message. `secrets status` lists all. */
const NAMED_MAX = 5

interface SecretCount {
  column: SecretColumn
  /** id of the key; null: plain text */
  keyId: string | null
  values: number
}

interface UnreadableValue {
  column: SecretColumn
  /** id of the row */
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

/** @param kind `selectEncrypted` skips rows whose values are all plain text */
export async function examineSecrets(
  database: Queryable,
  kind: 'selectPage' | 'selectEncrypted' = 'selectPage',
): Promise<SecretsStatus> {
  const { secretKeys } = database
  const counts = new Map<string, SecretCount>()
  const unreadable: UnreadableValue[] = []
  for (const table of SECRET_TABLES) {
    for await (const rows of pagesOf<SecretRow>(database, table, kind, PAGE_ROWS)) {
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
  const { unreadable } = await examineSecrets(database, 'selectEncrypted')
  if (unreadable.length > 0)
    throw new FatalError(explainUnreadable(unreadable, database.secretKeys.currentId !== null))
}

/** One line: what cannot be read, and what to do. */
export function explainUnreadable(unreadable: UnreadableValue[], hasKeys: boolean): string {
  const variable = hasKeys ? 'no key of SECRETS_KEYS reads' : 'SECRETS_KEYS is not set, so nothing reads'
  const noun = unreadable.length === 1 ? 'stored secret' : 'stored secrets'
  const accounts = nameSome('account', unique(unreadable.map(({ accountId }) => accountId)))
  const channels = unreadable.filter(({ accountId }) => accountId === null).map(({ id }) => id)
  const owners = [accounts, nameSome('notification channel', unique(channels))].filter((text) => text !== '')
  const keyIds = unique(unreadable.map(({ keyId }) => (keyId === '' ? null : keyId)))
  const named = keyIds.length === 0 ? '' : ` They name the ${nameSome('key', keyIds)}.`
  return (
    `${variable} ${unreadable.length} ${noun} of ${owners.join(' and ')}.${named} ` +
    'Add the missing key to SECRETS_KEYS, or store these secrets again. "oa-audience secrets status" lists them.'
  )
}

const unique = <T>(values: Array<T | null>): T[] => [
  ...new Set(values.filter((value): value is T => value !== null)),
]

/** `accounts 1, 2, 3, 4, 5 and 7 more` */
function nameSome(noun: string, names: Array<bigint | string>): string {
  if (names.length === 0) return ''
  const more = names.length > NAMED_MAX ? ` and ${names.length - NAMED_MAX} more` : ''
  return `${noun}${names.length === 1 ? '' : 's'} ${names.slice(0, NAMED_MAX).join(', ')}${more}`
}
