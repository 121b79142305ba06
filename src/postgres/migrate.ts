/** Brings the schema up to date from migrations/*.sql: forward only, each file once, one instance at a time. */
import { readdirSync, readFileSync } from 'node:fs'
import { FatalError } from '../errors.ts'
import { PACKAGE_ROOT } from '../package.ts'
import type { Database } from './database.ts'
import { sqlStateOf } from './faults.ts'
import type { Queryable } from './statement.ts'

const DIRECTORY = new URL('migrations/', PACKAGE_ROOT)

/** Any fixed number: the advisory lock that serializes instances that start at once. */
const MIGRATION_LOCK = 7_301_002

/** A lock that waits makes everybody else wait behind it, and a flush does for 600 ms at most: rather come back. */
const LOCK_WAIT_MS = 300

/** The oldest PostgreSQL that every statement here runs on (server_version_num). */
const OLDEST_POSTGRESQL = 140_000

/** SQLSTATE */
const NO_RIGHT = '42501'

interface Migration {
  version: number
  name: string
}

/**
 * Applies what is missing and returns the names of what it applied. Throws a FatalError when the schema was
 * made by a newer version of this program, the server is too old, or the database cannot hold every text.
 */
export async function migrate(database: Database): Promise<string[]> {
  return database.session(async (session) => {
    await refuseUnusable(session)
    await session.query('select pg_advisory_lock($1)', [MIGRATION_LOCK])
    await makeOwnTable(session)
    const known = listMigrations()
    const applied = await session.query<{ version: number }>('select version from schema_migration')
    refuseNewerSchema(known, applied)
    const missing = known.filter(({ version }) => !applied.some((row) => row.version === version))
    for (const migration of missing) await apply(session, migration)
    return missing.map(({ name }) => name)
  })
}

async function makeOwnTable(session: Queryable): Promise<void> {
  try {
    await session.query(`create table if not exists schema_migration (
      version int primary key,
      name text not null,
      applied_at timestamptz not null default now()
    )`)
  } catch (error) {
    if (sqlStateOf(error) !== NO_RIGHT) throw error
    throw new FatalError(
      'the database user may not make tables: `grant create on schema public to …` as its owner',
    )
  }
}

async function refuseUnusable(session: Queryable): Promise<void> {
  const [server] = await session.query<{ number: number; version: string; encoding: string }>(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
            current_setting('server_encoding') as encoding`,
  )
  if (server === undefined) return
  if (server.number < OLDEST_POSTGRESQL) {
    throw new FatalError(`PostgreSQL ${server.version} is too old: oa-audience needs version 14 or newer`)
  }
  if (server.encoding !== 'UTF8') {
    throw new FatalError(
      `the database's encoding is ${server.encoding}, which cannot hold every name and message: ` +
        "create one with encoding 'UTF8' template template0",
    )
  }
}

function listMigrations(): Migration[] {
  return readdirSync(DIRECTORY)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((name) => ({ version: Number.parseInt(name, 10), name }))
}

function refuseNewerSchema(known: Migration[], applied: Array<{ version: number }>): void {
  const newest = Math.max(0, ...applied.map(({ version }) => version))
  const newestKnown = known.at(-1)?.version ?? 0
  if (newest > newestKnown) {
    throw new FatalError(
      `the database schema is at version ${newest}, newer than this program knows (${newestKnown}): ` +
        'install the newer oa-audience again',
    )
  }
}

async function apply(session: Queryable, { version, name }: Migration): Promise<void> {
  await session.query('begin')
  try {
    await session.query(`set local lock_timeout = ${LOCK_WAIT_MS}`)
    await session.query(readFileSync(new URL(name, DIRECTORY), 'utf8'))
    await session.query('insert into schema_migration (version, name) values ($1, $2)', [version, name])
    await session.query('commit')
  } catch (error) {
    await session.query('rollback')
    throw error
  }
}
