/** A database in which Citus has distributed tables of the service. A table replaces Citus's catalogue. */
import { expect, it, onTestFinished } from 'vitest'
import { runCommand } from './support/command.ts'
import { createTestDatabase, urlOf } from './support/database.ts'
import { load } from './support/load.ts'

it('refuses a database only while Citus has distributed tables of the service, in one line that names three', async () => {
  const { database, connection } = await createTestDatabase()
  onTestFinished(() => database.close())
  const env = { DATABASE_URL: urlOf(connection) }
  await load(database, 'create table orders ()')
  await load(database, `create table pg_dist_partition as select 'orders'::regclass as logicalrelid`)
  expect(await runCommand(['clients', 'list'], env)).toMatchObject({ status: 0, stdout: 'none\n' })

  await load(
    database,
    `insert into pg_dist_partition
     select name::regclass from unnest(array['event', 'audience_member', 'endpoint', 'api_key', 'tracking_event']) name`,
  )
  await load(
    database,
    'delete from schema_migration where version = (select max(version) from schema_migration)',
  )
  const before = await load(database, 'select version from schema_migration')
  for (const command of ['migrate', 'doctor', 'clients list']) {
    const { status, stdout, stderr } = await runCommand(command.split(' '), env)
    expect(status).toBe(1)
    const lines = (command === 'doctor' ? stdout : stderr)
      .split('\n')
      .filter((line) => line.includes('Citus'))
    expect(lines).toEqual([
      expect.stringContaining('Citus has distributed api_key, audience_member, endpoint and 2 more. '),
    ])
  }
  expect(await load(database, 'select version from schema_migration')).toEqual(before)
})
