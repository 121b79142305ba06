/** Guarantees of the schema to other programs and to the database's administrator. */
import { expect, it, onTestFinished } from 'vitest'
import { readClockSkew } from '../../src/postgres/clock.ts'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { migrate, readMigrations } from '../../src/postgres/schema/migrate.ts'
import { statement } from '../../src/postgres/statement.ts'
import { TextDatabase, type TextQueryable } from '../../tools/text-database.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { runProgramAsync } from '../support/process.ts'

/** These hold an organization's configuration, or the state of the database itself. They do not grow with an audience. */
const REFERENCE_TABLES = [
  ...['organization', 'official_account', 'api_client', 'api_key', 'endpoint', 'endpoint_answer', 'segment'],
  'line_audience',
  ...['notification_channel', 'notification', 'notification_account', 'notification_watch'],
  ...[
    'endpoint_attempt',
    'endpoint_hour',
    'operator',
    'operator_session',
    'activity',
    'job',
    'job_file',
    'changed_account',
  ],
  ...['schema_migration', 'schema_function', 'change_mark', 'change_server', 'retired_address'],
  ...['database_restore', 'pending_reapply', 'unrecorded_revocation'],
]

it('every table that grows has the account in its columns, unique keys and references, so it can be distributed by account', async () => {
  const { database } = await createTestDatabase()
  const tables = await load<{ name: string; has_account: boolean }>(
    database,
    `select c.relname as name,
            exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'channel_oa_id') as has_account
       from pg_class c
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and c.relname <> all ($1)`,
    [REFERENCE_TABLES],
  )
  expect(tables.length).toBeGreaterThanOrEqual(10)
  expect(tables.filter(({ has_account }) => !has_account)).toEqual([])
  const names = [tables.map(({ name }) => name)]
  const keysWithoutAccount = await load(
    database,
    `select i.indexrelid::regclass::text as key
       from pg_index i join pg_class c on c.oid = i.indrelid
      where i.indisunique and c.relname = any ($1)
        and not exists (select from pg_attribute a
                         where a.attrelid = c.oid and a.attnum = any (i.indkey::int2[]) and a.attname = 'channel_oa_id')`,
    names,
  )
  expect(keysWithoutAccount).toEqual([])
  const referencesWithoutAccount = await load(
    database,
    `select f.conname
       from pg_constraint f join pg_class c on c.oid = f.conrelid
      where f.contype = 'f' and c.relname = any ($1)
        and not exists (select from pg_attribute a
                         where a.attrelid = c.oid and a.attnum = any (f.conkey) and a.attname = 'channel_oa_id')`,
    names,
  )
  expect(referencesWithoutAccount).toEqual([])
})

/** Runs `work` as a role that has rights on audience_member alone, and finds only its own schema. */
async function asOtherProgram(
  database: TextDatabase,
  role: string,
  work: (session: TextQueryable) => Promise<void>,
): Promise<void> {
  await database.session(async (session) => {
    await session.query(`create role ${role}`)
    await session.query(`create schema ${role} authorization ${role}`)
    await session.query(`grant select, insert, update, delete on audience_member to ${role}`)
    await session.query(`set role ${role}`)
    await session.query(`set search_path = ${role}`)
    await work(session)
    await session.query('reset search_path')
    await session.query('reset role')
    await session.query(`drop owned by ${role} cascade`)
    await session.query(`drop role ${role}`)
  })
}

async function editMembers(session: TextQueryable, { accountId, organizationId }: Tenant): Promise<void> {
  const members = 'public.audience_member'
  const scope = `${accountId}, ${organizationId}`
  await session.query(
    `insert into ${members} (channel_oa_id, organization_id, user_id, tags)
     values (${scope}, 'U1', '{new}'), (${scope}, 'U2', array['${'x'.repeat(6400)}']), (${scope}, 'U3', '{gone}'),
            (${scope}, 'U4', '{moved}')`,
  )
  await session.query(`update ${members} set tags = '{vip}', external_id = 'customer-1' where user_id = 'U1'`)
  // The schema's functions must not write to tables that the caller puts in the place of the schema's own.
  await session.query(
    `create temporary table erased_member (channel_oa_id bigint, organization_id bigint, id bigint);
     create temporary table audience_tag (channel_oa_id bigint, tag text, member_id bigint)`,
  )
  await session.query(`delete from ${members} where user_id = 'U3'`)
  await session.query(`update ${members} set id = 777 where user_id = 'U4'`)
}

it('another program with rights on audience_member alone changes members, and its edits, tags and erasures are recorded', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  await asOtherProgram(database, `crm_${connection.database}`, (session) => editMembers(session, tenant))
  expect(await database.query('select fields, api_key_id from member_edit')).toEqual([
    { fields: ['externalId', 'tags'], api_key_id: null },
  ])
  const tags = await database.query(`select tag, member_id = 777 as is_moved from audience_tag order by tag`)
  expect(tags).toEqual([
    { tag: 'moved', is_moved: true },
    { tag: 'vip', is_moved: false },
  ])
  expect(await database.query('select from erased_member')).toHaveLength(1)
})

it('migrate refuses a database whose encoding cannot store every text', async () => {
  const { database, connection } = await createTestDatabase()
  const name = `${connection.database}_latin1`
  await load(database, `create database ${name} encoding 'LATIN1' locale 'C' template template0`)
  const latin1 = new TextDatabase({ ...connection, database: name }, () => undefined)
  onTestFinished(() => latin1.close())
  await expect(migrate(latin1)).rejects.toThrow(/encoding is LATIN1.*encoding 'UTF8' template template0/)
})

it('migrate names the missing grant when the role may not create tables', async () => {
  const { database, connection } = await createTestDatabase()
  const role = `reader_${connection.database}`
  await load(database, `create role ${role} login; revoke create on schema public from public`)
  const other = new TextDatabase({ ...connection, user: role }, () => undefined)
  onTestFinished(() => other.close())
  await expect(migrate(other)).rejects.toThrow('`grant create on schema public')
})

const functionFile = (sql: string) => ({ name: 'functions/answer.sql', sql, checksum: sql })
const answer = (value: number) =>
  functionFile(`create or replace function answer() returns int language sql return ${value}`)

const read = (database: TextDatabase) => database.query('select answer() as value')

it('a function file is applied when it is new, and again only after it has changed', async () => {
  const { database } = await createTestDatabase()
  const applied = (value: number) => migrate(database, readMigrations(), [answer(value)])
  expect(await applied(1)).toEqual(['functions/answer.sql'])
  expect(await read(database)).toEqual([{ value: 1 }])
  expect(await applied(1)).toEqual([])
  expect(await applied(2)).toEqual(['functions/answer.sql'])
  expect(await read(database)).toEqual([{ value: 2 }])
})

it('a function file leaves all functions as they were when one file fails', async () => {
  const { database } = await createTestDatabase()
  const broken = { name: 'functions/broken.sql', sql: 'select 1/0', checksum: 'broken' }
  await migrate(database, readMigrations(), [answer(1)])
  await expect(migrate(database, readMigrations(), [answer(2), broken])).rejects.toThrow('division by zero')
  expect(await read(database)).toEqual([{ value: 1 }])
  expect(await migrate(database, readMigrations(), [answer(2)])).toEqual(['functions/answer.sql'])
})

it('a session commits to disk, isolates and reads text as the service needs it, for any defaults of the database', async () => {
  const { database, connection } = await createTestDatabase()
  await load(
    database,
    `alter database ${connection.database} set synchronous_commit = off;
     alter database ${connection.database} set default_transaction_isolation = 'serializable';
     alter database ${connection.database} set standard_conforming_strings = off`,
  )
  const again = openDatabase(connection)
  const settings = `select current_setting('synchronous_commit') as on_disk,
                           current_setting('transaction_isolation') as isolation, '\\d' as backslash`
  const expected = [{ on_disk: 'on', isolation: 'read committed', backslash: '\\d' }]
  expect(await again.query(settings)).toEqual(expected)
  const bound = { statement: statement('test-settings')`${settings}`, values: [] }
  expect(await again.pin().pipelineIdempotent([bound])).toEqual([expected])
  expect(await load(again, `select '\\d' as backslash`)).toEqual([{ backslash: '\\d' }])
})

it('a migration is refused if it was edited after it was applied', async () => {
  const { database } = await createTestDatabase()
  const [first, ...others] = readMigrations()
  if (first === undefined) throw new Error('no migration')
  const edited = { ...first, checksum: 'of another text' }
  await expect(migrate(database, [edited, ...others])).rejects.toThrow(/0001-.+\.sql differs from the one/)
})

it('a migration is applied once, by one of several instances that start at the same time', async () => {
  const { database } = await createTestDatabase()
  const next = { version: 9000, name: '9000-next.sql', sql: 'create table next ()', checksum: 'next' }
  const migrations = [...readMigrations(), next]
  const applied = await Promise.all([1, 2, 3].map(() => migrate(database, migrations)))
  expect(applied.flat()).toEqual(['9000-next.sql'])
})

const clockAt = (offsetMs: number) => () => Date.now() + offsetMs

it('the clock of the database is reported as ahead of or behind this machine, apart from the time of the query', async () => {
  const { database } = await createTestDatabase()
  expect(await readClockSkew(database)).toBeCloseTo(0, 0)
  expect(await readClockSkew(database, clockAt(-60_000))).toBeCloseTo(60, 0)
  expect(await readClockSkew(database, clockAt(60_000))).toBeCloseTo(-60, 0)
})

const newestKnown = readMigrations().at(-1)?.version ?? 0

const versions = (database: PostgresDatabase) =>
  load(database, 'select version, checksum from schema_migration order by version')

it.each(['clients list', 'organizations add --name x', 'doctor'])(
  '%s changes nothing and names the command to run when the schema is older',
  async (command) => {
    const { database, env } = await createTestDatabase()
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
  const { database, env } = await createTestDatabase('template0')
  const { status, stderr } = await runCommand(['clients', 'list'], env)
  expect(status).toBe(1)
  expect(stderr).toBe('oa-audience: the database has no schema yet. Run "oa-audience migrate".\n')
  expect(await load(database, 'select from pg_tables where schemaname = current_schema()')).toEqual([])
  expect((await runCommand(['migrate'], env)).stdout).toMatch(/^applied 0001-/)
  expect(await runCommand(['clients', 'list'], env)).toMatchObject({ status: 0, stdout: 'none\n' })
})

it('refuses a schema that is newer than the program with one line, and leaves its functions alone', async () => {
  const { database, env } = await createTestDatabase()
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
