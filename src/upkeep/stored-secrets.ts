/** The stored secrets: encrypts them under the first key, counts them by key, and finds those that no key reads. */
import {
  keyIdOf,
  SECRET_COLUMNS,
  type SecretColumn,
  type SecretKeys,
  type SecretTable,
} from '../config/secret-keys.ts'
import { AppError, FatalError } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { LOCK_TIMEOUT, sqlStateOf } from '../postgres/faults.ts'
import { type Queryable, type Row, statement, type Transactions } from '../postgres/statement.ts'

/** 200 rows × 3 values × 5,500 bytes, the longest that an operator can store, = 3.3 MB. */
const PAGE_ROWS = 200

interface SecretRow extends Row {
  id: bigint
  /** null: a notification channel, which belongs to no account */
  accountId: bigint | null
  /** the columns in the order of SECRET_COLUMNS */
  values: Array<string | null>
}

const isPlain = (table: SecretTable) =>
  SECRET_COLUMNS[table].map((column) => `is_plain_secret(${column})`).join(' or ')

/** @param noun is in the names of the statements */
function statementsOf(table: SecretTable, noun: string, accountId: string) {
  const columns = SECRET_COLUMNS[table]
  const row = `id, ${accountId} as "accountId", json_build_array(${columns.join(', ')}) as values`
  return {
    /** $1 bigint: last id of the previous page; $2 int: rows; $3 boolean: only rows with plain text */
    select: statement(`select-${noun}-secrets`)`
    select ${row}
      from ${table}
     where id > $1 and coalesce(${columns.join(', ')}) is not null and (not $3 or ${isPlain(table)})
     order by id limit $2`,
    /** $1 bigint: id. Waits for the lock up to the time limit of the session. */
    lock: statement(`lock-${noun}-secrets-to-encrypt`)`
    select ${row} from ${table} where id = $1 for no key update`,
    /** $1 bigint: id; $2 and the following text: the columns */
    update: statement(`update-${noun}-secrets`)`
    update ${table} set ${columns.map((column, index) => `${column} = $${index + 2}`).join(', ')} where id = $1`,
  }
}

const STATEMENTS = {
  official_account: statementsOf('official_account', 'account', 'id'),
  endpoint: statementsOf('endpoint', 'endpoint', 'channel_oa_id'),
  notification_channel: statementsOf('notification_channel', 'channel', 'null::bigint'),
}

const TABLES = Object.keys(STATEMENTS) as SecretTable[]

async function* readRows(
  database: Queryable,
  isPlainOnly: boolean,
): AsyncGenerator<[table: SecretTable, row: SecretRow]> {
  for (const table of TABLES) {
    for (let afterId: bigint | undefined = INT64_MIN; afterId !== undefined; ) {
      const values = [afterId, PAGE_ROWS, isPlainOnly]
      const rows: SecretRow[] = await database.query(STATEMENTS[table].select, values)
      for (const row of rows) yield [table, row]
      afterId = rows[PAGE_ROWS - 1]?.id
    }
  }
}

const columnAt = (table: SecretTable, index: number): SecretColumn =>
  `${table}.${SECRET_COLUMNS[table][index]}` as SecretColumn

/** Encrypts plain text, and values of other keys than the first. A value that no key reads stays as it is. */
function convertRow(keys: SecretKeys, table: SecretTable, { id, values }: SecretRow) {
  const converted = values.map((stored, index) => {
    if (stored === null || keys.isCurrent(stored)) return stored
    const column = columnAt(table, index)
    return keys.encrypt(column, id, keys.decryptOrNull(column, id, stored)) ?? stored
  })
  // Encryption is random, so a converted value always differs.
  return { converted, changes: converted.filter((value, index) => value !== values[index]).length }
}

/** The triggers of official_account then keep credentials_version, and no check of the account begins. */
const markEncryption = statement('mark-encryption')`select set_config('oa_audience.encrypts', 'on', true)`

/** Converts the values that it reads under its own lock. Returns the number of changes. */
function changeRow(database: Transactions, table: SecretTable, id: bigint): Promise<number> {
  return database.transaction(async (transaction) => {
    await transaction.query(markEncryption)
    const [row] = await transaction.query<SecretRow>(STATEMENTS[table].lock, [id])
    if (row === undefined) return 0
    const { converted, changes } = convertRow(database.secretKeys, table, row)
    if (changes > 0) await transaction.query(STATEMENTS[table].update, [id, ...converted])
    return changes
  })
}

/** Each row is a transaction, so a killed process loses nothing, and the next run continues it. `onProgress` gets the values so far. */
export async function changeSecrets(
  database: Transactions,
  isPlainOnly: boolean,
  onProgress: (values: number) => void = () => undefined,
): Promise<{ values: number; unchangedRows: number }> {
  const total = { values: 0, unchangedRows: 0 }
  for await (const [table, row] of readRows(database, isPlainOnly)) {
    if (convertRow(database.secretKeys, table, row).changes === 0) continue
    try {
      total.values += await changeRow(database, table, row.id)
    } catch (error) {
      // Another program has locked the row, or added a constraint that refuses the change.
      if (error instanceof AppError && sqlStateOf(error) !== LOCK_TIMEOUT) throw error
      total.unchangedRows += 1
    }
    onProgress(total.values)
  }
  return total
}

const countPlain = statement('count-plain-secrets')`
    select (${TABLES.map((table) => `(select count(*) from ${table} where ${isPlain(table)})`).join(' + ')})::int as rows`

export async function countPlainRows(database: Queryable): Promise<number> {
  const [plain] = await database.query<{ rows: number }>(countPlain)
  return plain?.rows ?? 0
}

interface SecretCount {
  column: SecretColumn
  /** id of the key; null: plain text */
  keyId: string | null
  values: number
}

interface UnreadableValue {
  column: SecretColumn
  id: bigint
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
  for await (const [table, { id, accountId, values }] of readRows(database, false)) {
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
