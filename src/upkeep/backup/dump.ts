/** Backs up and restores the database of DATABASE_URL with PostgreSQL's client programs pg_dump and pg_restore. */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type DatabaseChoice, environmentOfPrograms } from '../../config/config.ts'
import { addressForPrograms } from '../../config/database-url.ts'
import { libpqVariables } from '../../config/libpq-variables.ts'
import { serviceVersion } from '../../config/package.ts'
import type { Secret } from '../../config/secret.ts'
import { FatalError } from '../../errors.ts'
import type { Database } from '../../postgres/database.ts'
import { withOpened } from '../../postgres/pool/open.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import {
  type BackupFile,
  checksumOf,
  createBackupDirectory,
  dataOf,
  listTree,
  type Manifest,
  OWNER_ONLY,
  readMoment,
  syncDirectory,
  withFile,
  writeManifest,
} from './files.ts'
import { type Restored, recordRestore } from './revived.ts'

/** Indexes are built in parallel. Each job has a connection. */
const RESTORE_JOBS = Math.min(4, availableParallelism())

export async function backUpByDump(database: Database, url: Secret, directory: string): Promise<Manifest> {
  // Read before the snapshot of pg_dump, so that every change that the dump lacks is later.
  const moment = await database.session(readMoment)
  const [{ pattern } = { pattern: '' }] = await database.query<{ pattern: string }>(selectPattern)
  await run('pg_dump', ['--version'])
  createBackupDirectory(directory)
  const data = dataOf(directory)
  const format = ['--format=directory', '--no-owner', '--no-privileges', `--schema=${pattern}`]
  await runOn(url, 'pg_dump', [...format, `--file=${data}`])
  const tree = await listTree(data)
  const files: BackupFile[] = []
  for (const path of tree.files) {
    const file = join(data, path)
    files.push({ path, ...(await checksumOf(file)) })
    await withFile(file, async (written) => {
      await written.chmod(OWNER_ONLY)
      await written.sync()
    })
  }
  await syncDirectory(data)
  const manifest: Manifest = { kind: 'dump', version: serviceVersion, ...moment, directories: [], files }
  await writeManifest(directory, manifest)
  return manifest
}

/** Only the schema of the service: providers have schemas of their own in the database. Quotes keep pg_dump from reading a pattern. */
const selectPattern = statement('select-schema-to-dump')`
    select '"' || replace(current_schema(), '"', '""') || '"' as pattern`

/** A schema of temporary tables exists in a session that has used one. */
const selectContents = statement('select-contents-of-schema')`
    select schema,
           exists (select from pg_class c
                    where c.relnamespace = to_regnamespace(quote_ident(schema)) and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
                      and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')) as has_tables
      from (select (select schema from unnest(current_schemas(false)) as schema where schema !~ '^pg_temp' limit 1)) target (schema)`

/** A service refuses to start while the table exists (refuseUnfinishedRestore). */
const createMarker = statement('create-restore-marker')`create table unfinished_restore ()`

/** Everything in the schema has been restored, so nobody has granted anything on purpose. */
const closeTables = statement('close-restored-tables')`
    select revoke_default_privileges(array_agg(c.oid::regclass))
      from pg_class c join pg_class o on o.oid = 'official_account'::regclass and (o.relnamespace, o.relowner) = (c.relnamespace, c.relowner)
     where c.relkind in ('r', 'p', 'v')`

export function restoreDump(
  choice: Extract<DatabaseChoice, { kind: 'url' }>,
  directory: string,
  manifest: Manifest,
  ledger: string | null,
): Promise<Restored> {
  const data = dataOf(directory)
  return withOpened(
    choice,
    (database) => database.session((session) => beginRestore(session, data)),
    async (database, list) => {
      const options = [`--jobs=${RESTORE_JOBS}`, '--exit-on-error', '--no-owner', '--no-privileges']
      const temporary = mkdtempSync(join(tmpdir(), 'oa-audience-restore-'))
      const file = join(temporary, 'list')
      writeFileSync(file, list)
      await runOn(choice.url, 'pg_restore', [...options, `--use-list=${file}`, data]).finally(() =>
        rmSync(temporary, { recursive: true }),
      )
      await migrate(database)
      await database.query(closeTables)
      return recordRestore(database, manifest, ledger)
    },
  )
}

/** Returns the list of what to restore. */
async function beginRestore(session: Queryable, data: string): Promise<string> {
  const [target] = await session.query<{ schema: string | null; has_tables: boolean }>(selectContents)
  if (target?.has_tables !== false)
    throw new FatalError(
      `the schema ${target?.schema} of DATABASE_URL is not empty. Create an empty database and set DATABASE_URL to it.`,
    )
  const list = await run('pg_restore', ['--list', data])
  const [, schema = ''] = /^\d+; \d+ \d+ TABLE (.+) official_account .*$/m.exec(list) ?? []
  if (schema !== target.schema)
    throw new FatalError(
      `the backup has its tables in the schema ${schema}, but DATABASE_URL leads to ${target.schema ?? 'none'}. Let an ` +
        `administrator create the schema for the database user, and run \`alter role … set search_path = ${schema}\`.`,
    )
  await session.query(createMarker)
  // The schema exists, and perhaps only an administrator may create or describe one.
  const isOfSchema = (line: string) =>
    line.includes(` ${schema} `) && /^\S+ \S+ \S+ (SCHEMA|COMMENT) - /.test(line)
  return list
    .split('\n')
    .filter((line) => !isOfSchema(line))
    .join('\n')
}

/** The password is in the environment, because every user of the machine can read arguments. */
async function runOn(url: Secret, program: string, args: string[]): Promise<void> {
  const { address, password } = addressForPrograms(url.reveal())
  await run(program, [...args, `--dbname=${address}`], password === null ? {} : { PGPASSWORD: password })
}

/** Longer than the list of all objects of a schema: 1,000 lines of 100 bytes. */
const OUTPUT_MAX_BYTES = 16 * 1024 * 1024

/** Returns what it printed. Throws a FatalError with the first error. pg_dump itself refuses a newer server. */
async function run(program: string, args: string[], variables: Record<string, string> = {}): Promise<string> {
  const env = { ...environmentOfPrograms(), ...libpqVariables(), LC_ALL: 'C', ...variables }
  try {
    const { stdout } = await promisify(execFile)(program, args, { env, maxBuffer: OUTPUT_MAX_BYTES })
    return stdout
  } catch (error) {
    const { code, stderr } = error as { code: number | string; stderr: string }
    if (code === 'ENOENT')
      throw new FatalError(
        `${program} is not in the PATH. Install the client programs of the server's version, or back the server up as ` +
          'docs/operate/backup.md says (pg_basebackup, snapshots).',
      )
    const line = stderr.split('\n').find((text) => text.includes('error: '))
    throw new FatalError(line ?? `${program} ended with ${code}`)
  }
}
