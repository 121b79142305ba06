/** A database in which Citus has distributed tables of the service. A table replaces Citus's catalogue. faults/citus.test.ts has the real Citus. */
import { expect, it, onTestFinished } from 'vitest'
import { runCommand } from './support/command.ts'
import { createTestDatabase, urlOf } from './support/database.ts'
import { load } from './support/load.ts'
import { becomesWell, runProgramAsync, spawnService } from './support/process.ts'

/** One line names the tables, and no other line names Citus. */
const ONE_REFUSAL =
  /^(?:(?!.*Citus).*\n)*.*Citus has distributed audience_member, event\. .+\n(?:(?!.*Citus).*\n)*$/

/** @param tables those that Citus is said to have distributed */
async function setUpCitus(tables: string[], template?: string) {
  const { database, connection } = await createTestDatabase(template)
  onTestFinished(() => database.close())
  await load(database, 'create table pg_dist_partition (logicalrelid regclass not null)')
  for (const table of tables) {
    await load(database, 'insert into pg_dist_partition values ($1::text::regclass)', [table])
  }
  return { database, env: { DATABASE_URL: urlOf(connection) } }
}

it.each(['serve', 'migrate', 'doctor', 'clients list'])(
  '%s names the distributed tables in one line and does nothing',
  async (command) => {
    const { env } = await setUpCitus(['event', 'audience_member'])
    const run = command === 'serve' ? runProgramAsync : runCommand
    const { status, stdout, stderr } = await run(command.split(' '), env)
    expect(status).toBe(1)
    expect(command === 'doctor' ? stdout : stderr).toMatch(ONE_REFUSAL)
  },
)

it('names three tables at most', async () => {
  const { env } = await setUpCitus(['event', 'audience_member', 'endpoint', 'api_key', 'tracking_event'])
  const { stderr } = await runCommand(['migrate'], env)
  expect(stderr).toMatch(/Citus has distributed api_key, audience_member, endpoint and 2 more\. /)
})

it('migrate changes nothing where tables are distributed', async () => {
  const { database, env } = await setUpCitus(['endpoint'])
  await load(
    database,
    'delete from schema_migration where version = (select max(version) from schema_migration)',
  )
  const before = await load(database, 'select version from schema_migration')
  expect((await runCommand(['migrate'], env)).stderr).toMatch(
    /^oa-audience: Citus has distributed endpoint\. .+\n$/,
  )
  expect(await load(database, 'select version from schema_migration')).toEqual(before)
})

it('serves and migrates where Citus is installed and no table of the service is distributed', async () => {
  const { database, env } = await setUpCitus([])
  await load(database, 'create table orders ()')
  await load(database, `insert into pg_dist_partition values ('orders'::regclass)`)
  expect((await runCommand(['migrate'], env)).status).toBe(0)
  const service = await spawnService(env)
  await becomesWell(service.url)
  expect(await runCommand(['clients', 'list'], env)).toMatchObject({ status: 0, stdout: 'none\n' })
})

it('creates the schema in a new database that has Citus', async () => {
  const { env } = await setUpCitus([], 'template0')
  expect((await runCommand(['migrate'], env)).stdout).toMatch(/^applied 0001-/)
})
