/** Brings the schema up to date from migrations/*.sql: forward only, each file once, one instance at a time. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { PACKAGE_ROOT } from '../../config/package.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../database.ts'
import { sqlStateOf } from '../faults.ts'
import { MIGRATION_LOCK } from '../locks.ts'
import { begin, commit, type Queryable, rollback, statement, unnamed } from '../statement.ts'
import { readFunctions, replaceFunctions } from './functions.ts'

/** Other sessions queue behind our lock request, and a flush waits 600 ms at most, so the request times out and is retried. */
const LOCK_TIMEOUT_MS = 300

/** The oldest PostgreSQL that every statement runs on (server_version_num). */
const OLDEST_POSTGRESQL = 140_000

const INSUFFICIENT_PRIVILEGE = '42501'
const UNDEFINED_TABLE = '42P01'

export interface Migration {
  version: number
  name: string
  sql: string
  /** SHA-256 of the file. A migration that was applied must never be edited. */
  checksum: string
}

/** $1 bigint: MIGRATION_LOCK */
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

/** $1 int: version; $2 text: name; $3 text: checksum */
const storeApplied = statement('store-applied-migration')`
    insert into schema_migration (version, name, checksum) values ($1, $2, $3)`

/** See migrations/functions/restores.sql. */
const raiseNumbers = statement('raise-numbers-after-restore')`
    select raise_change_offset(), raise_member_ids(null)`

/** Reads the migrations of this package, oldest first. */
export function readMigrations(directory = new URL('migrations/', PACKAGE_ROOT)): Migration[] {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((name) => {
      const sql = readFileSync(new URL(name, directory), 'utf8')
      const checksum = createHash('sha256').update(sql).digest('hex')
      return { version: Number.parseInt(name, 10), name, sql, checksum }
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
    await createMigrationTable(session)
    const applied = await readApplied(session)
    requireKnownSchema(migrations, applied)
    const missing = migrations.filter(({ version }) => !applied.has(version))
    for (const migration of missing) await apply(session, migration)
    const replaced = await replaceFunctions(session, functions)
    await session.query(raiseNumbers)
    return [...missing.map(({ name }) => name), ...replaced]
  })
}

/** For a command. Throws a FatalError unless it can run on the current schema. Changes nothing. */
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

async function createMigrationTable(session: Queryable): Promise<void> {
  try {
    await session.query(createTable)
  } catch (error) {
    if (sqlStateOf(error) !== INSUFFICIENT_PRIVILEGE) throw error
    throw new FatalError(
      'the database user may not create tables. Run `grant create on schema public to …` as the owner of the schema.',
    )
  }
}

/** Reads the checksums of applied migrations, by version. */
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
  await session.query(begin)
  try {
    await session.query(limitLockWait)
    await session.query(unnamed(sql))
    await session.query(storeApplied, [version, name, checksum])
    await session.query(commit)
  } catch (error) {
    await session.query(rollback)
    throw error
  }
}
