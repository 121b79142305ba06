/** A database in which Citus has distributed tables of the service. A table stands for Citus's catalogue. */
import { expect, it } from 'vitest'
import { runCommand } from './support/command.ts'
import { createTestDatabase } from './support/database.ts'
import { load } from './support/load.ts'

it('refuses with one line a database in which Citus has distributed a table of the service', async () => {
  const { database, env } = await createTestDatabase()
  await load(
    database,
    'create table orders (); create table pg_dist_partition (logicalrelid regclass not null)',
  )
  await load(database, `insert into pg_dist_partition values ('orders')`)
  expect(await runCommand(['migrate'], env)).toMatchObject({ status: 0, stdout: 'nothing to do\n' })
  await load(database, `insert into pg_dist_partition values ('event'), ('audience_member')`)
  await load(
    database,
    'delete from schema_migration where version = (select max(version) from schema_migration)',
  )
  for (const command of ['migrate', 'clients list']) {
    const { status, stderr } = await runCommand(command.split(' '), env)
    expect(status).toBe(1)
    expect(stderr).toMatch(/^oa-audience: Citus has distributed audience_member\. .+\n$/)
  }
})
