/** What the schema promises to whoever runs it. */
import { expect, it } from 'vitest'
import { migrate } from '../src/postgres/migrate.ts'
import { PostgresDatabase } from '../src/postgres/postgres-database.ts'
import { addTenant, createTestDatabase } from './support/database.ts'

/** Small: an organization's set-up, not its people. */
const REFERENCE_TABLES = ['organization', 'official_account', 'api_client', 'api_key', 'schema_migration']

it('every table that grows can be distributed by account: each has the account, and no key or reference is without it', async () => {
  const { database } = await createTestDatabase()
  const tables = await database.query<{ name: string; has_account: boolean }>(
    `select c.relname as name,
            exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'channel_oa_id') as has_account
       from pg_class c
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and c.relname <> all ($1)`,
    [REFERENCE_TABLES],
  )
  expect(tables.length).toBeGreaterThanOrEqual(10)
  expect(tables.filter(({ has_account }) => !has_account)).toEqual([])
  const keys = await database.query(
    `select i.indexrelid::regclass::text as key
       from pg_index i join pg_class c on c.oid = i.indrelid
      where i.indisunique and c.relname = any ($1)
        and not exists (select from pg_attribute a
                         where a.attrelid = c.oid and a.attnum = any (i.indkey::int2[]) and a.attname = 'channel_oa_id')`,
    [tables.map(({ name }) => name)],
  )
  expect(keys).toEqual([])
  const references = await database.query(
    `select f.conname
       from pg_constraint f join pg_class c on c.oid = f.conrelid
      where f.contype = 'f' and c.relname = any ($1)
        and not exists (select from pg_attribute a
                         where a.attrelid = c.oid and a.attnum = any (f.conkey) and a.attname = 'channel_oa_id')`,
    [tables.map(({ name }) => name)],
  )
  expect(references).toEqual([])
  await database.close()
})

it('another program that may write members alone can change them, and its edits are kept', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const role = `crm_${connection.database}`
  await database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id, tags) values ($1, $2, 'U1', '{new}')`,
    [tenant.accountId, tenant.organizationId],
  )
  await database.session(async (session) => {
    await session.query(`create role ${role}`)
    await session.query(`create schema ${role} authorization ${role}`)
    await session.query(`grant select, insert, update, delete on audience_member to ${role}`)
    await session.query(`set role ${role}`)
    await session.query(`set search_path = ${role}`)
    const members = 'public.audience_member'
    await session.query(`update ${members} set tags = '{vip}', external_id = 'customer-1'`)
    const scope = `${tenant.accountId}, ${tenant.organizationId}`
    await session.query(
      `insert into ${members} (channel_oa_id, organization_id, user_id, tags)
       values (${scope}, 'U2', array['${'x'.repeat(6400)}']), (${scope}, 'U3', '{gone}'), (${scope}, 'U4', '{moved}')`,
    )
    // What our functions write to is ours, whatever the caller puts in its place.
    await session.query(
      'create temporary table erased_member (channel_oa_id bigint, organization_id bigint, id bigint)',
    )
    await session.query(
      'create temporary table audience_tag (channel_oa_id bigint, tag text, member_id bigint)',
    )
    await session.query(`delete from ${members} where user_id = 'U3'`)
    await session.query(`update ${members} set id = 777 where user_id = 'U4'`)
    await session.query('reset search_path')
    await session.query('reset role')
    await session.query(`drop owned by ${role} cascade`)
    await session.query(`drop role ${role}`)
  })
  expect(await database.query('select fields, api_key_id from member_edit')).toEqual([
    { fields: ['externalId', 'tags'], api_key_id: null },
  ])
  expect(await database.query('select tag from audience_tag where member_id <> 777')).toEqual([
    { tag: 'vip' },
  ])
  expect(await database.query('select tag from audience_tag where member_id = 777')).toEqual([
    { tag: 'moved' },
  ])
  expect(await database.query('select from erased_member')).toHaveLength(1)
  await database.close()
})

it('a database that cannot hold every text is refused, with what to do', async () => {
  const { database, connection } = await createTestDatabase()
  const name = `${connection.database}_latin1`
  await database.session((session) =>
    session.query(`create database ${name} encoding 'LATIN1' locale 'C' template template0`),
  )
  const latin1 = new PostgresDatabase({ ...connection, database: name }, () => undefined)
  await expect(migrate(latin1)).rejects.toThrow(/encoding is LATIN1.*encoding 'UTF8' template template0/)
  await Promise.all([latin1.close(), database.close()])
})

it('a user who may not make tables is told what to grant', async () => {
  const { database, connection } = await createTestDatabase()
  const role = `reader_${connection.database}`
  await database.session(async (session) => {
    await session.query(`create role ${role} login`)
    await session.query('revoke create on schema public from public')
  })
  const other = new PostgresDatabase({ ...connection, user: role }, () => undefined)
  await expect(migrate(other)).rejects.toThrow('may not make tables: `grant create on schema public')
  await Promise.all([other.close(), database.close()])
})

it('what is answered is on disk and reads the same, whatever the database does by default', async () => {
  const { database, connection } = await createTestDatabase()
  await database.session((session) =>
    session.query(
      `alter database ${connection.database} set synchronous_commit = off;
       alter database ${connection.database} set default_transaction_isolation = 'serializable';
       alter database ${connection.database} set standard_conforming_strings = off`,
    ),
  )
  const again = new PostgresDatabase(connection, () => undefined)
  again.markReady()
  const settings = `select current_setting('synchronous_commit') as on_disk,
                           current_setting('transaction_isolation') as isolation, '\\d' as backslash`
  const expected = [{ on_disk: 'on', isolation: 'read committed', backslash: '\\d' }]
  expect(await again.query(settings)).toEqual(expected)
  expect(
    await again.lane().pipeline([{ statement: { name: 'settings', text: settings }, values: [] }]),
  ).toEqual([expected])
  expect(await again.session((session) => session.query(`select '\\d' as backslash`))).toEqual([
    { backslash: '\\d' },
  ])
  await Promise.all([again.close(), database.close()])
})
