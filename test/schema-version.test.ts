/** Which commands change the schema, and what they say of a schema that is older or newer than the program. */
import { expect, it } from 'vitest'
import type { PostgresDatabase } from '../src/postgres/pool/postgres-database.ts'
import { readMigrations } from '../src/postgres/schema/migrate.ts'
import { runCommand } from './support/command.ts'
import { createTestDatabase, urlOf } from './support/database.ts'
import { load } from './support/load.ts'
import { runProgramAsync } from './support/process.ts'

const newestKnown = readMigrations().at(-1)?.version ?? 0

async function setUp(template?: string) {
  const { database, connection } = await createTestDatabase(template)
  return { database, env: { DATABASE_URL: urlOf(connection) } }
}

const versions = (database: PostgresDatabase) =>
  load(database, 'select version, checksum from schema_migration order by version')

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

it('refuses a command with one line on a database without a schema, until migrate ran', async () => {
  const { database, env } = await setUp('template0')
  const { status, stderr } = await runCommand(['clients', 'list'], env)
  expect(status).toBe(1)
  expect(stderr).toBe('oa-audience: the database has no schema yet. Run "oa-audience migrate".\n')
  expect(await load(database, 'select from pg_tables where schemaname = current_schema()')).toEqual([])
  expect((await runCommand(['migrate'], env)).stdout).toMatch(/^applied 0001-/)
  expect(await runCommand(['clients', 'list'], env)).toMatchObject({ status: 0, stdout: 'none\n' })
})

it('refuses a schema that is newer than the program with one line, and leaves its functions alone', async () => {
  const { database, env } = await setUp()
  await load(
    database,
    `insert into schema_migration (version, name, checksum) values (${newestKnown + 1}, 'next.sql', 'next');
     update schema_function set checksum = 'of a later version'`,
  )
  for (const { status, stderr } of [
    await runProgramAsync(['serve'], env),
    await runCommand(['clients', 'list'], env),
  ]) {
    expect(status).toBe(1)
    expect(stderr).toMatch(/^oa-audience: the database schema has version \d+, but this program knows .+\n$/)
  }
  const functions = await load(database, `select from schema_function where checksum <> 'of a later version'`)
  expect(functions).toEqual([])
})
