/** The real Citus. The service accepts a database that merely has Citus, and refuses one in which Citus distributes its tables. */
import { existsSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import {
  findDebianPostgres,
  type PostgresServer,
  ReplicatedPostgres,
} from '../../tools/simulator/replicated-postgres.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant } from '../support/database.ts'
import { becomesWell, runProgramAsync, spawnService, temporaryDirectory } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

const tools = findDebianPostgres()
// tools is /usr/lib/postgresql/MAJOR/bin.
const control = `/usr/share/postgresql/${basename(dirname(tools ?? ''))}/extension/citus.control`
const isCitusInstalled = tools !== null && existsSync(control)
if (!isCitusInstalled) {
  console.warn('\n!!! CITUS IS NOT INSTALLED beside the PostgreSQL of Debian: ITS REFUSAL IS NOT TESTED.\n')
}

/** Nodes of Citus connect to each other, and the user that the server runs as may not read root's certificates. */
const SETTINGS = `
shared_preload_libraries = 'citus'
wal_level = logical
max_prepared_transactions = 20
citus.node_conninfo = 'sslmode=disable'
`

/** One server is coordinator and worker. */
async function startCitus(): Promise<{ server: PostgresServer; env: { DATABASE_URL: string } }> {
  const options = { standbys: 0, settings: SETTINGS }
  const cluster = await ReplicatedPostgres.start(tools ?? '', temporaryDirectory(), options)
  onTestFinished(() => cluster.stop())
  await cluster.primary.ask('create extension citus')
  return { server: cluster.primary, env: { DATABASE_URL: cluster.url } }
}

const REFUSAL = /^oa-audience: Citus has distributed \w+\. .+\n$/

describe.runIf(isCitusInstalled)('a database with Citus', () => {
  it('is served while no table of the service is distributed', async () => {
    const { server, env } = await startCitus()
    await server.ask('create table orders (id int)')
    await server.ask(`select create_distributed_table('orders', 'id')`)
    const service = await spawnService(env)
    await becomesWell(service.url)
    const database = new TextDatabase(env.DATABASE_URL, () => undefined)
    onTestFinished(() => database.close())
    database.markReady()
    const tenant = await addTenant(database)
    const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
    expect((await fetch(service.url + path, init)).status).toBe(200)
    const list = await fetch(`${service.url}/api/audience`, { headers: tenant.headers })
    expect(await list.json()).toMatchObject({ data: [{ relationship: 'following' }] })
  })

  it.each([
    ['distributed', `select create_distributed_table('audience_tag', 'channel_oa_id')`],
    ['a reference table', `select create_reference_table('change_mark')`],
  ])('is refused when one table of the service is %s', async (_, distribute) => {
    const { server, env } = await startCitus()
    expect((await runProgramAsync(['migrate'], env)).status).toBe(0)
    await server.ask(distribute)
    await server.ask('create role service login')
    const asService = { DATABASE_URL: env.DATABASE_URL.replace('postgres@', 'service@') }
    await server.ask('grant all on all tables in schema public to service')
    await server.ask('grant create on schema public to service')
    for (const [command, by] of [
      [['serve'], env],
      [['migrate'], env],
      [['clients', 'list'], asService],
    ] as const) {
      const { status, stderr } = await runProgramAsync([...command], by)
      expect(status).toBe(1)
      expect(stderr).toMatch(REFUSAL)
    }
    await server.ask(`select undistribute_table(logicalrelid) from pg_dist_partition`)
    expect((await runProgramAsync(['clients', 'list'], asService)).status).toBe(0)
  })

  it('is refused before the migrations when new tables of the schema would be distributed', async () => {
    const { server, env } = await startCitus()
    await server.ask('set citus.enable_schema_based_sharding = on; create schema audience')
    await server.ask('alter role postgres set search_path = audience')
    const { status, stderr } = await runProgramAsync(['migrate'], env)
    expect(status).toBe(1)
    expect(stderr).toMatch(REFUSAL)
    expect(
      await server.ask(`select string_agg(tablename, ' ') from pg_tables where schemaname = 'audience'`),
    ).toBe('schema_migration')
  })
})
