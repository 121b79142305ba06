/**
 * Encrypts stored secrets under the first key. Small batches go through each table by id. Each batch skips rows that another
 * transaction has locked, and converts the values that it reads under its own locks. So a killed process loses nothing, and the next run
 * continues it.
 */
import {
  SECRET_COLUMNS,
  type SecretColumn,
  type SecretKeys,
  type SecretTable,
} from '../config/secret-keys.ts'
import { AppError } from '../errors.ts'
import {
  type Queryable,
  type Row,
  type Statement,
  statement,
  type Transactions,
} from '../postgres/statement.ts'

/** 200 rows × 3 values × 10 µs = 6 ms per transaction, during which other changes of these rows wait. */
const BATCH_ROWS = 200

/** Other programs may insert negative ids. */
const FIRST_ID = -(2n ** 63n)

/** The triggers of official_account then keep credentials_version, and no check of the account begins. */
const markEncryption = statement('mark-encryption')`select set_config('oa_audience.encrypts', 'on', true)`

/**
 * Encrypts plain text, and re-encrypts values of other keys than the first. Returns the stored value if there is nothing to change, or
 * if no key reads it.
 */
function toFirstKey(keys: SecretKeys, column: SecretColumn, id: bigint, stored: string): string {
  if (keys.isCurrent(stored)) return stored
  const text = keys.decryptOrNull(column, id, stored)
  return text === null ? stored : keys.encrypt(column, id, text)
}

interface Changed {
  values: number
  /** rows that another transaction had locked */
  lockedRows: number
  /** rows whose change PostgreSQL refused */
  refusedRows: number
}

const NOTHING: Changed = { values: 0, lockedRows: 0, refusedRows: 0 }

const sum = (a: Changed, b: Changed): Changed => ({
  values: a.values + b.values,
  lockedRows: a.lockedRows + b.lockedRows,
  refusedRows: a.refusedRows + b.refusedRows,
})

/**
 * Encrypts the values of all rows of one kind.
 * @param kind `selectPlain` finds only rows with plain text
 * @param onProgress receives the number of encrypted values so far
 */
export async function changeSecrets(
  database: Transactions,
  kind: 'selectPage' | 'selectPlain',
  onProgress: (values: number) => void = () => undefined,
): Promise<Changed> {
  let total = NOTHING
  for (const table of SECRET_TABLES) {
    for await (const rows of pagesOf<SecretRow>(database, table, kind, BATCH_ROWS)) {
      const changing = rows.filter(
        (row) => kind === 'selectPlain' || hasChange(database.secretKeys, table, row),
      )
      if (changing.length === 0) continue
      const ids = changing.map(({ id }) => id)
      total = sum(total, await changeRows(database, table, ids))
      onProgress(total.values)
    }
  }
  return total
}

export async function* pagesOf<R extends { id: bigint }>(
  database: Queryable,
  table: SecretTable,
  kind: 'selectPage' | 'selectPlain',
  pageRows: number,
): AsyncGenerator<R[]> {
  for (let afterId = FIRST_ID; ; ) {
    const rows = await database.query<R & Record<string, unknown>>(TABLES[table][kind], [afterId, pageRows])
    if (rows.length > 0) yield rows
    const last = rows.at(-1)
    if (last === undefined || rows.length < pageRows) return
    afterId = last.id
  }
}

/** If PostgreSQL refuses one row, for example because of a constraint of another program, the others are changed without it. */
async function changeRows(database: Transactions, table: SecretTable, ids: bigint[]): Promise<Changed> {
  try {
    return await changeBatch(database, table, ids)
  } catch (error) {
    if (error instanceof AppError) throw error
    if (ids.length === 1) return { ...NOTHING, refusedRows: 1 }
  }
  let total = NOTHING
  for (const id of ids) total = sum(total, await changeRows(database, table, [id]))
  return total
}

function changeBatch(database: Transactions, table: SecretTable, ids: bigint[]): Promise<Changed> {
  return database.transaction(async (transaction) => {
    await transaction.query(markEncryption)
    const locked = await transaction.query<SecretRow>(TABLES[table].lock, [ids])
    const changing = locked.filter((row) => hasChange(database.secretKeys, table, row))
    const converted = changing.map((row) => convertRow(database.secretKeys, table, row))
    if (changing.length > 0) {
      await transaction.query(TABLES[table].update, [
        changing.map(({ id }) => id),
        ...SECRET_COLUMNS[table].map((_, column) => converted.map((values) => values[column] ?? null)),
      ])
    }
    const values = changing.reduce(
      (count, row, index) => count + differences(row.values, converted[index]),
      0,
    )
    return { ...NOTHING, values, lockedRows: ids.length - locked.length }
  })
}

const differences = (before: Array<string | null>, after: Array<string | null> = []) =>
  before.filter((value, index) => value !== after[index]).length

const convertRow = (keys: SecretKeys, table: SecretTable, { id, values }: SecretRow) =>
  values.map((value, index) => value && toFirstKey(keys, columnAt(table, index), id, value))

/** Encryption is random, so a converted value always differs. */
const hasChange = (keys: SecretKeys, table: SecretTable, row: SecretRow): boolean =>
  differences(row.values, convertRow(keys, table, row)) > 0

export const columnAt = (table: SecretTable, index: number): SecretColumn =>
  `${table}.${SECRET_COLUMNS[table][index]}` as SecretColumn

// The statements over the columns that hold secrets, one set for each table. `values` are the columns in the order of SECRET_COLUMNS.

export interface SecretRow extends Row {
  id: bigint
  /** null: a notification channel, which belongs to no account */
  accountId: bigint | null
  values: Array<string | null>
}

interface TableStatements {
  /** Rows with a secret. $1 bigint: last id of the previous page; $2 int: rows */
  selectPage: Statement
  /** Ids of rows with plain text. $1 bigint: last id of the previous batch; $2 int: rows */
  selectPlain: Statement
  /** Rows that no other transaction has locked, with their current values. $1 bigint[]: ids */
  lock: Statement
  update: Statement
}

/** @param noun is in the names of the statements */
function statementsOf(
  table: SecretTable,
  noun: string,
  accountId: string,
  lockName: string,
): TableStatements {
  const columns = SECRET_COLUMNS[table]
  const row = `id, ${accountId} as "accountId", json_build_array(${columns.join(', ')}) as values`
  const isPlain = columns.map((column) => `is_plain_secret(${column})`).join(' or ')
  const types = columns.map((_, index) => `$${index + 2}::text[]`).join(', ')
  return {
    selectPage: statement(`select-${noun}-secrets`)`
    select ${row}
      from ${table}
     where id > $1 and coalesce(${columns.join(', ')}) is not null
     order by id limit $2`,
    selectPlain: statement(`select-plain-${noun}-secrets`)`
    select id from ${table}
     where id > $1 and (${isPlain})
     order by id limit $2`,
    lock: statement(lockName)`
    select ${row}
      from ${table} where id = any ($1) for no key update skip locked`,
    update: statement(`update-${noun}-secrets`)`
    update ${table} r
       set ${columns.map((column) => `${column} = v.${column}`).join(', ')}
      from unnest($1::bigint[], ${types}) as v (id, ${columns.join(', ')})
     where r.id = v.id`,
  }
}

const TABLES: Record<SecretTable, TableStatements> = {
  official_account: statementsOf('official_account', 'account', 'id', 'lock-account-secrets'),
  endpoint: statementsOf('endpoint', 'endpoint', 'channel_oa_id', 'lock-endpoint-secrets-to-encrypt'),
  notification_channel: statementsOf(
    'notification_channel',
    'channel',
    'null::bigint',
    'lock-channel-secrets',
  ),
}

export const SECRET_TABLES = Object.keys(TABLES) as SecretTable[]
