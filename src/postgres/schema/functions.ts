/**
 * Replaces the SQL functions of migrations/functions/*.sql. A file is applied if its checksum differs from the stored one. These
 * functions change often, and a file that is edited in place shows a change as a diff.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { PACKAGE_ROOT } from '../../config/package.ts'
import { begin, commit, type Queryable, rollback, statement, unnamed } from '../statement.ts'

export interface FunctionFile {
  name: string
  /** Contains only `create or replace function`, so that it can be applied again. */
  sql: string
  /** SHA-256 of the file. */
  checksum: string
}

/** Reads the function files of this package, ordered by name. */
export function readFunctions(directory = new URL('migrations/functions/', PACKAGE_ROOT)): FunctionFile[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((file) => {
      const sql = readFileSync(new URL(file, directory), 'utf8')
      const checksum = createHash('sha256').update(sql).digest('hex')
      return { name: `functions/${file}`, sql, checksum }
    })
}

const createFunctionTable = statement('create-function-table')`
    create table if not exists schema_function (
      name text primary key,
      checksum text not null,
      applied_at timestamptz not null default now()
    )`

const selectFunctions = statement('select-applied-functions')`select name, checksum from schema_function`

/** $1 text: name; $2 text: checksum */
const storeFunction = statement('store-applied-function')`
    insert into schema_function (name, checksum) values ($1, $2)
        on conflict (name) do update set checksum = excluded.checksum, applied_at = now()`

/**
 * Applies the changed files in one transaction and returns their names. The caller holds the migration lock. Replacing a function
 * locks no table. A running call finishes with the old text, and the next call uses the new one.
 */
export async function replaceFunctions(session: Queryable, files: FunctionFile[]): Promise<string[]> {
  await session.query(createFunctionTable)
  const applied = await session.query<{ name: string; checksum: string }>(selectFunctions)
  const checksums = new Map(applied.map(({ name, checksum }) => [name, checksum]))
  const changed = files.filter(({ name, checksum }) => checksums.get(name) !== checksum)
  if (changed.length === 0) return []
  await session.query(begin)
  try {
    for (const { name, sql, checksum } of changed) {
      await session.query(unnamed(sql))
      await session.query(storeFunction, [name, checksum])
    }
    await session.query(commit)
  } catch (error) {
    await session.query(rollback)
    throw error
  }
  return changed.map(({ name }) => name)
}
