/** Brings the schema up to date from migrations/*.sql: forward only, each file once, one instance at a time. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { PACKAGE_ROOT } from '../../config/package.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../database.ts'
import { sqlStateOf } from '../faults.ts'
import { MIGRATION_LOCK } from '../locks.ts'
import { begin, commit, type Queryable, rollback, statement, unnamed } from '../statement.ts'

/** Other sessions queue behind our lock request, and a flush waits 600 ms at most, so the request times out and is retried. */
const LOCK_TIMEOUT_MS = 300

/** The oldest PostgreSQL that every statement runs on (server_version_num). */
const OLDEST_POSTGRESQL = 140_000

const INSUFFICIENT_PRIVILEGE = '42501'
const UNDEFINED_TABLE = '42P01'

interface SqlFile {
  name: string
  sql: string
  /** SHA-256 of the file. A migration that was applied must never be edited. */
  checksum: string
}

interface Migration extends SqlFile {
  version: number
}

const lockMigrations = statement('lock-migrations')`select pg_advisory_lock($1)`

const limitLockWait = statement('limit-lock-wait-of-migration')`set local lock_timeout = ${LOCK_TIMEOUT_MS}`

const selectServer = statement('select-server-settings')`
    select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
      current_setting('server_encoding') as encoding, current_setting('search_path') as path,
      (select schema from unnest(current_schemas(false)) as schema where schema !~ '^pg_temp' limit 1) as schema`

const createTable = statement('create-migration-table')`
    create table if not exists schema_migration (
      version int primary key,
      name text not null,
      checksum text not null,
      applied_at timestamptz not null default now()
    )`

const selectApplied = statement('select-applied-migrations')`select version, checksum from schema_migration`

const storeApplied = statement('store-applied-migration')`
    insert into schema_migration (version, name, checksum) values ($1, $2, $3)`

/** See migrations/functions/restores.sql. */
const raiseNumbers = statement('raise-numbers-after-restore')`
    select raise_change_offset(), raise_member_ids(null)`

export function readMigrations(directory = new URL('migrations/', PACKAGE_ROOT)): Migration[] {
  return readFiles(directory).map((file) => ({ ...file, version: Number.parseInt(file.name, 10) }))
}

function readFiles(directory: URL): SqlFile[] {
  const names = readdirSync(directory).filter((name) => name.endsWith('.sql'))
  return names.sort().map((name) => {
    const sql = readFileSync(new URL(name, directory), 'utf8')
    return { name, sql, checksum: createHash('sha256').update(sql).digest('hex') }
  })
}

/**
 * Applies the missing migrations, then the changed functions, and returns their names. Throws a FatalError if the server is too
 * old, the database cannot store every text, the schema is newer than this program, or an applied migration was edited.
 */
export async function migrate(
  database: Database,
  migrations = readMigrations(),
  functions = readFunctions(),
): Promise<string[]> {
  return database.session(async (session) => {
    await requireUsableServer(session)
    await session.query(lockMigrations, [MIGRATION_LOCK])
    await createOwnTables(session)
    const applied = await readApplied(session)
    requireKnownSchema(migrations, applied)
    const missing = migrations.filter(({ version }) => !applied.has(version))
    for (const migration of missing) await apply(session, migration)
    const replaced = await replaceFunctions(session, functions)
    await session.query(raiseNumbers)
    return [...missing.map(({ name }) => name), ...replaced]
  })
}

/** Commands call it. Throws a FatalError unless the command can run on the current schema. Changes nothing. */
export async function requireMigrated(database: Database, migrations = readMigrations()): Promise<void> {
  await database.session(async (session) => {
    await requireUsableServer(session)
    const applied = await readApplied(session)
    requireKnownSchema(migrations, applied)
    const missing = migrations.flatMap(({ version }) => (applied.has(version) ? [] : [version]))
    if (missing.length === 0) return
    const problem =
      applied.size === 0
        ? 'the database has no schema yet'
        : `the database schema lacks migration ${missing.join(', ')}`
    throw new FatalError(`${problem}. Run "oa-audience migrate".`)
  })
}

async function requireUsableServer(session: Queryable): Promise<void> {
  const [server] = await session.query<{
    number: number
    version: string
    encoding: string
    schema: string | null
    path: string
  }>(selectServer)
  if (server === undefined) return
  if (server.number < OLDEST_POSTGRESQL) {
    throw new FatalError(`PostgreSQL ${server.version} is too old. oa-audience needs version 14 or newer.`)
  }
  if (server.encoding !== 'UTF8') {
    throw new FatalError(
      `the database's encoding is ${server.encoding}, which cannot store every name and message. ` +
        "Create a database with encoding 'UTF8' template template0.",
    )
  }
  if (server.schema === null) {
    throw new FatalError(
      `search_path (${server.path}) contains no schema that the database user may use. ` +
        'Create the schema, or run `alter role … set search_path = public`.',
    )
  }
}

async function createOwnTables(session: Queryable): Promise<void> {
  try {
    await session.query(createTable)
    await session.query(createFunctionTable)
  } catch (error) {
    if (sqlStateOf(error) !== INSUFFICIENT_PRIVILEGE) throw error
    throw new FatalError(
      'the database user may not create tables. Run `grant create on schema public to …` as the owner of the schema.',
    )
  }
}

async function readApplied(session: Queryable): Promise<Map<number, string>> {
  try {
    const rows = await session.query<{ version: number; checksum: string }>(selectApplied)
    return new Map(rows.map(({ version, checksum }) => [version, checksum]))
  } catch (error) {
    if (sqlStateOf(error) === UNDEFINED_TABLE) return new Map()
    throw error
  }
}

/** A newer schema may lack what this program uses, and has newer functions, which an older program must not replace. */
function requireKnownSchema(migrations: Migration[], applied: Map<number, string>): void {
  const newest = Math.max(0, ...applied.keys())
  const newestKnown = migrations.at(-1)?.version ?? 0
  if (newest > newestKnown) {
    throw new FatalError(
      `the database schema has version ${newest}, but this program knows versions up to ${newestKnown}. ` +
        'Install the newer oa-audience again.',
    )
  }
  for (const { version, name, checksum } of migrations) {
    if (applied.has(version) && applied.get(version) !== checksum) {
      throw new FatalError(
        `migrations/${name} differs from the one that was applied to this database. ` +
          'Restore the file and put the change into a new migration.',
      )
    }
  }
}

async function apply(session: Queryable, { version, name, sql, checksum }: Migration): Promise<void> {
  await inTransaction(session, async () => {
    await session.query(limitLockWait)
    await session.query(unnamed(sql))
    await session.query(storeApplied, [version, name, checksum])
  })
}

async function inTransaction(session: Queryable, work: () => Promise<void>): Promise<void> {
  await session.query(begin)
  try {
    await work()
    await session.query(commit)
  } catch (error) {
    await session.query(rollback)
    throw error
  }
}

// Replaces the SQL functions of migrations/functions/*.sql. A file is applied if its checksum differs from the stored one. These
// functions change often, and a file that is edited in place shows a change as a diff.

function readFunctions(): SqlFile[] {
  return readFiles(new URL('migrations/functions/', PACKAGE_ROOT)).map((file) => ({
    ...file,
    name: `functions/${file.name}`,
  }))
}

const createFunctionTable = statement('create-function-table')`
    create table if not exists schema_function (
      name text primary key,
      checksum text not null,
      applied_at timestamptz not null default now()
    )`

const selectFunctions = statement('select-applied-functions')`select name, checksum from schema_function`

const storeFunction = statement('store-applied-function')`
    insert into schema_function (name, checksum) values ($1, $2)
        on conflict (name) do update set checksum = excluded.checksum, applied_at = now()`

/**
 * Applies the changed files in one transaction and returns their names. The caller holds the migration lock. Replacing a function
 * locks no table. A running call finishes with the old text, and the next call uses the new one.
 */
async function replaceFunctions(session: Queryable, files: SqlFile[]): Promise<string[]> {
  const applied = await session.query<{ name: string; checksum: string }>(selectFunctions)
  const checksums = new Map(applied.map(({ name, checksum }) => [name, checksum]))
  const changed = files.filter(({ name, checksum }) => checksums.get(name) !== checksum)
  if (changed.length === 0) return []
  await inTransaction(session, async () => {
    for (const { name, sql, checksum } of changed) {
      await session.query(unnamed(sql))
      await session.query(storeFunction, [name, checksum])
    }
  })
  return changed.map(({ name }) => name)
}

/** `oa-audience restore` creates the table before it copies a dump, and drops it in the transaction that completes the restore. */
const selectMarker = statement('select-restore-marker')`
    select to_regclass('unfinished_restore') is not null as is_unfinished`

export async function refuseUnfinishedRestore(database: Database): Promise<void> {
  const [row] = await database.session((session) => session.query<{ is_unfinished: boolean }>(selectMarker))
  if (row?.is_unfinished !== true) return
  throw new FatalError(
    'a restore into this database was interrupted or still runs. If none runs, create another empty database, and run ' +
      '"oa-audience restore" again.',
  )
}
