/** Which commands change the schema, and which versions of the service run on a schema that is newer or older than theirs. */
import { expect, it } from 'vitest'
import type { PostgresDatabase } from '../src/postgres/pool/postgres-database.ts'
import { readMigrations } from '../src/postgres/schema/migrate.ts'
import { runCommand } from './support/command.ts'
import { createTestDatabase, urlOf } from './support/database.ts'
import { load } from './support/load.ts'
import { becomesWell, runProgramAsync, spawnService } from './support/process.ts'

const newestKnown = readMigrations().at(-1)?.version ?? 0

async function setUp(template?: string) {
  const { database, connection } = await createTestDatabase(template)
  return { database, env: { DATABASE_URL: urlOf(connection) } }
}

const versions = (database: PostgresDatabase) =>
  load(database, 'select version, checksum from schema_migration order by version')

/** Changes the database as the migrations of a later version would. */
async function migrateFurther(database: PostgresDatabase, { oldestSupported }: { oldestSupported: number }) {
  await load(
    database,
    `insert into schema_migration (version, name, checksum) values (${newestKnown + 1}, 'next.sql', 'next');
     update schema_compatibility set oldest_supported = ${oldestSupported};
     update schema_function set checksum = 'of a later version'`,
  )
}

it.each(['clients list', 'organizations add --name x', 'doctor'])(
  '%s changes nothing and names the command to run when the schema is older',
  async (command) => {
    const { database, env } = await setUp()
    await load(database, 'delete from schema_migration where version = $1', [newestKnown])
    const before = await versions(database)
    const { status, stdout, stderr } = await runCommand(command.split(' '), env)
    expect(status).toBe(1)
    expect(stdout + stderr).toContain(
      `the database schema lacks migration ${newestKnown}. Run "oa-audience migrate".\n`,
    )
    expect(await versions(database)).toEqual(before)
  },
)

it.each(['migrate', 'clients list', 'doctor'])(
  '%s refuses a database of a release before 0.2.0',
  async (command) => {
    const { database, env } = await setUp()
    await load(
      database,
      `delete from schema_migration;
     insert into schema_migration (version, name, checksum)
     values (1, '0001-accounts-and-access.sql', 'a'), (26, '0026-endpoint-fan-out.sql', 'z')`,
    )
    const { status, stdout, stderr } = await runCommand(command.split(' '), env)
    expect(status).toBe(1)
    expect(stdout + stderr).toContain('a release before 0.2.0 created this database')
    expect(stdout + stderr).toContain('Start with a new database')
    expect(await versions(database)).toHaveLength(2)
  },
)

it('refuses a command with one line on a database without a schema, until migrate ran', async () => {
  const { database, env } = await setUp('template0')
  const { status, stderr } = await runCommand(['clients', 'list'], env)
  expect(status).toBe(1)
  expect(stderr).toBe('oa-audience: the database has no schema yet. Run "oa-audience migrate".\n')
  expect(await load(database, 'select from pg_tables where schemaname = current_schema()')).toEqual([])
  expect((await runCommand(['migrate'], env)).stdout).toMatch(/^applied 0001-/)
  expect(await runCommand(['clients', 'list'], env)).toMatchObject({ status: 0, stdout: 'none\n' })
})

it('starts on a newer schema that supports it, and leaves the newer functions alone', async () => {
  const { database, env } = await setUp()
  await migrateFurther(database, { oldestSupported: newestKnown })
  const service = await spawnService(env)
  await becomesWell(service.url)
  expect((await runCommand(['clients', 'list'], env)).status).toBe(0)
  const functions = await load(database, `select from schema_function where checksum <> 'of a later version'`)
  expect(functions).toEqual([])
})

it('refuses a newer schema that does not support it with one line', async () => {
  const { database, env } = await setUp()
  await migrateFurther(database, { oldestSupported: newestKnown + 1 })
  for (const { status, stderr } of [
    await runProgramAsync(['serve'], env),
    await runCommand(['clients', 'list'], env),
  ]) {
    expect(status).toBe(1)
    expect(stderr).toMatch(/^oa-audience: the database schema has version \d+ and supports .+\n$/)
  }
})
