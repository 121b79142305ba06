/** Which roles can use the tables, on databases whose default privileges give everything to other roles, such as those of Supabase. */
import { expect, it, onTestFinished } from 'vitest'
import { migrate, readMigrations } from '../../src/postgres/schema/migrate.ts'
import {
  createKeyPartitions,
  createPartitions,
  EVENTS,
  TRACKING_EVENTS,
} from '../../src/upkeep/partitions.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { findingsOf } from '../support/command.ts'
import { createTestDatabase, openDatabase, urlOf } from '../support/database.ts'

const EVERYTHING = ['tables', 'sequences', 'functions']

/** An empty database of a role that is not a superuser, and whose new objects belong to `anon` and `app` too. The roles end with the test. */
async function createOpenDatabase() {
  const { database: admin, connection } = await createTestDatabase('template1')
  const suffix = connection.database.slice(5)
  const name = (role: string) => `${role}_${suffix}`
  const roles = ['owner', 'anon', 'app', 'crm', 'spy'].map(name)
  const sql = (text: string) => admin.session((session) => session.query(text))
  for (const role of roles) await sql(`create role ${role} login`)
  await sql(`grant create on schema public to ${name('owner')}`)
  onTestFinished(async () => {
    for (const role of roles) await sql(`drop owned by ${role} cascade; drop role ${role}`)
  })
  for (const kind of EVERYTHING) {
    const defaults = `alter default privileges for role ${name('owner')}`
    await sql(`${defaults} in schema public grant all on ${kind} to ${name('anon')} with grant option`)
    await sql(`${defaults} grant all on ${kind} to ${name('app')}`)
  }
  const owned = { ...connection, user: name('owner') }
  return { sql, name, database: openDatabase(owned), env: { DATABASE_URL: urlOf(owned) } }
}

/** Tables, partitions and sequences on which another role than the owner has any right, with the roles. */
const sharedIn = (database: TextDatabase) =>
  database.session((session) =>
    session.query<{ name: string; roles: string[] }>(`
      select c.oid::regclass::text as name, array_agg(distinct a.grantee::regrole::text) as roles
        from pg_class c cross join aclexplode(c.relacl) a
       where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and a.grantee <> c.relowner
       group by c.oid order by 1`),
  )

const rolesOf = async (env: Record<string, string>) =>
  (await findingsOf(env)).filter(({ check }) => check.startsWith('role '))

it('default privileges give no role a right on a table, a sequence, or a partition that is created later, and granted rights work', async () => {
  const { database, sql, name, env } = await createOpenDatabase()
  await migrate(database)
  expect(await sharedIn(database)).toEqual([])
  await database.session(async (session) => {
    await createPartitions(session, EVENTS)
    await createPartitions(session, TRACKING_EVENTS)
    await createKeyPartitions(session)
    const partitions = await session.query(
      `select from pg_class where relname ~ '_\\d{8}$' and relkind = 'r'`,
    )
    expect(partitions.length).toBeGreaterThan(20)
  })
  expect(await sharedIn(database)).toEqual([])
  expect(await rolesOf(env)).toEqual([])
  // Contract with other programs: rights on the tables that they write are enough.
  const tables = 'organization, official_account, api_client, api_key, audience_member'
  await sql(`grant select, insert, update on ${tables} to ${name('crm')}`)
  await sql(`set role ${name('crm')};
    insert into organization (name) values ('one');
    insert into official_account (organization_id, name, channel_id) values (1, 'one', '1');
    update official_account set tracking_key = 'two';
    insert into api_client (client_id, client_secret) values ('one', 'secret');
    insert into api_key (api_client_id, key, channel_oa_id, organization_id) values (1, 'key', 1, 1);
    insert into audience_member (channel_oa_id, organization_id, user_id) values (1, 1, 'U1');
    reset role`)
  expect(await sharedIn(database)).toHaveLength(5)
})

it('an upgrade revokes what default privileges gave, and keeps what an administrator granted to other roles or in another extent', async () => {
  const { database, sql, name, env } = await createOpenDatabase()
  // Up to 0.3.0. The newest functions need the newest schema.
  await expect(migrate(database, readMigrations().slice(0, 11), [])).rejects.toThrow('raise_change_offset')
  const names = (await sharedIn(database)).map((table) => table.name)
  expect(names).toEqual(
    expect.arrayContaining(['official_account', 'event_default', 'official_account_id_seq']),
  )
  await sql('create table unrelated ()')
  await sql(`alter table unrelated owner to ${name('owner')}; grant all on unrelated to ${name('anon')}`)
  await sql(`grant select, insert on organization to ${name('crm')}`)
  // A grant that depends on one that ends.
  await sql(`set role ${name('anon')}; grant select on official_account to ${name('spy')}; reset role`)
  await migrate(database)
  expect(await sharedIn(database)).toEqual([
    { name: 'organization', roles: [name('crm')] },
    { name: 'unrelated', roles: [name('anon')] },
  ])
  await sql(`grant select on official_account to ${name('app')}`)
  await migrate(database)
  expect(await rolesOf(env)).toMatchObject([{ check: `role ${name('app')}` }])
})

/** How a role gets rights, and what doctor says that it may do. */
const WAYS: Array<[grant: string, may: RegExp | null]> = [
  ['grant select on official_account to ROLE', /^may read official_account/],
  ['grant select (channel_secret) on official_account to ROLE', /^may read official_account/],
  ['grant update (status) on api_client to ROLE', /^may change api_client/],
  ['grant delete on audience_member to ROLE', /^may change audience_member/],
  ['grant trigger on api_key to ROLE', /^may change api_key/],
  ['grant select on event_default to ROLE', /^may read event/],
  ['grant select on stored_event to ROLE', /^may read stored_event/],
  ['grant pg_read_all_data to ROLE', /^may read api_client, api_key, audience_tag, .*, where/],
  ['grant postgres to ROLE', /^may read api_client, .*, and change api_client,/],
  ['alter role ROLE noinherit; grant postgres to ROLE', /, and change api_client,/],
  ['grant all on unsent_message to ROLE', null],
  ['alter role ROLE superuser; grant all on api_key to ROLE', null],
]

it('doctor names each role that may read or change secrets or members, and a right of every role once', async () => {
  const { database, connection, env } = await createTestDatabase()
  const sql = (text: string) => database.session((session) => session.query(text))
  const nameOf = (no: number) => `way${String(no).padStart(2, '0')}_${connection.database.slice(5)}`
  onTestFinished(async () => {
    for (const no of WAYS.keys()) await sql(`drop owned by ${nameOf(no)} cascade; drop role ${nameOf(no)}`)
  })
  for (const [no, [grant]] of WAYS.entries())
    await sql(`create role ${nameOf(no)}; ${grant.replaceAll('ROLE', nameOf(no))}`)
  await sql('grant select on audience_member to public')
  const expected = WAYS.flatMap(([, may], no) =>
    may ? [[`role ${nameOf(no)}`, 'warning', may] as const] : [],
  )
  const found = await rolesOf(env)
  expect(found).toEqual(
    [
      ['role public', 'warning', /^may read audience_member, where .* from public, /] as const,
      ...expected,
    ].map(([check, severity, may]) => ({ check, severity, message: expect.stringMatching(may) })),
  )
  await sql('revoke usage on schema public from public')
  const others = (await rolesOf(env)).map(({ check }) => check)
  // pg_read_all_data includes usage of every schema.
  expect(others).toEqual([7, 8, 9].map((no) => `role ${nameOf(no)}`))
})

it('only functions of triggers run with the rights of the owner, so no right on functions needs to end', async () => {
  const { database } = await createTestDatabase()
  const found = await database.query('select from pg_proc where prosecdef and prorettype <> $1::regtype', [
    'trigger',
  ])
  expect(found).toEqual([])
})
