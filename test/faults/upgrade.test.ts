/** A rolling upgrade from the last release under load, in which one instance is rolled back. */
import { randomBytes } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { Receiver } from '../../tools/load/receiver.ts'
import { randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { FailoverLoad, NO_LIMITS } from '../support/failover-load.ts'
import { load as loadRows } from '../support/load.ts'
import { assembleNextVersion, buildPreviousVersion } from '../support/previous-version.ts'
import {
  becomesWell,
  runProgram,
  runProgramAsync,
  type ServiceProcess,
  spawnService,
  temporaryDirectory,
} from '../support/process.ts'

/** Building takes a minute or two, and more on a slow network. */
const BUILD_TIMEOUT_MS = 900_000
/** Events between two steps of the upgrade, so that every combination of versions is under load. */
const STEP_EVENTS = 300
/** The migration and four replacements. */
const STEPS = 5
const FAILURES_SHOWN = 3

async function startInstance(env: Record<string, string>, program: string): Promise<ServiceProcess> {
  const instance = await spawnService(env, program)
  await becomesWell(instance.url)
  return instance
}

async function setUpDatabase(previous: string) {
  const { database, connection } = await createTestDatabase('template0')
  const env = { ...NO_LIMITS, DATABASE_URL: urlOf(connection) }
  expect(await runProgramAsync(['migrate'], env, previous)).toMatchObject({ status: 0, stderr: '' })
  return { database, env }
}

/** An endpoint of each format. */
/** Plain inserts, as by another program: the statements of this version need its schema. */
async function insertTenant(database: TextDatabase): Promise<Tenant> {
  const channelSecret = randomBytes(16).toString('hex')
  const botUserId = randomUserId()
  const headers = {
    'x-client-id': randomBytes(12).toString('hex'),
    'x-client-secret': randomBytes(12).toString('hex'),
    'x-api-key': randomBytes(12).toString('hex'),
  }
  type Row = {
    organization: bigint
    account: bigint
    oa_hash: string
    tracking_key: string
    client: bigint
    key: bigint
  }
  const [row] = await database.query<Row>(
    `with o as (insert into organization (name) values ('test') returning id),
          a as (insert into official_account (organization_id, name, channel_secret, bot_user_id)
                select id, 'test', $1, $2 from o returning id, organization_id, oa_hash, tracking_key),
          c as (insert into api_client (client_id, client_secret) values ($3, $4) returning id),
          k as (insert into api_key (api_client_id, key, channel_oa_id, organization_id)
                select c.id, $5, a.id, a.organization_id from c, a returning id)
     select a.organization_id as organization, a.id as account, a.oa_hash, a.tracking_key, c.id as client, k.id as key from a, c, k`,
    [channelSecret, botUserId, ...Object.values(headers)],
  )
  if (row === undefined) throw new Error('nothing was inserted')
  return {
    ...{
      organizationId: row.organization,
      accountId: row.account,
      channelSecret,
      chatSecret: null,
      botUserId,
    },
    ...{
      oaHash: row.oa_hash,
      trackingKey: row.tracking_key,
      clientRowId: row.client,
      keyId: row.key,
      headers,
    },
  }
}

async function addEndpoints(database: TextDatabase, { accountId }: Tenant, url: string) {
  const endpoints = await database.query<{ format: string; secret: string }>(
    `insert into endpoint (channel_oa_id, url, format, allow_private_network)
     values ($1, $2 || '/line/0', 'line', true), ($1, $2 || '/members/0', 'members', true) returning format, secret`,
    [accountId, url],
  )
  const members = endpoints.find(({ format }) => format === 'members')
  return { lineEvents: [], membersSecret: members?.secret as string }
}

/** Two instances of a version under load, with an endpoint of each format. */
async function startUnderLoad(program: string) {
  const { database, env } = await setUpDatabase(program)
  const tenant = await insertTenant(database)
  const faults: Error[] = []
  const receiver = new Receiver((error) => faults.push(error))
  onTestFinished(() => receiver.close())
  const endpoints = await addEndpoints(database, tenant, await receiver.start())
  const [first, second] = [await startInstance(env, program), await startInstance(env, program)]
  const load = new FailoverLoad([first.url, second.url], tenant, database, endpoints).withLists()
  receiver.books.push(load.book)
  onTestFinished(() => load.client.close())
  load.start()
  return { env, faults, first, second, load }
}

type UnderLoad = Awaited<ReturnType<typeof startUnderLoad>>

/** Resolves when the current instances have answered requests of each kind. */
async function work({ load }: UnderLoad): Promise<void> {
  const target = load.acknowledged.line + STEP_EVENTS
  const { walks, feeds } = load.reader
  await expect
    .poll(() => load)
    .toSatisfy(
      ({ acknowledged, reader, faults }) =>
        faults.length > 0 || (acknowledged.line >= target && reader.walks > walks && reader.feeds > feeds),
    )
}

/** No request needs a retry: an instance leaves the load balancer before it is stopped. */
function expectNoFailures({ load }: UnderLoad): void {
  expect(load.faults).toEqual([])
  expect(load.client.failures.slice(0, FAILURES_SHOWN)).toEqual([])
}

/** Stops an instance as an orchestrator does, and starts an instance of `program` in its place. */
async function replace(
  fleet: UnderLoad,
  { url, child, exited }: ServiceProcess,
  program: string,
): Promise<ServiceProcess> {
  const { client } = fleet.load
  client.takeOutOfService(url)
  child.kill('SIGTERM')
  expect(await exited).toEqual({ code: 0, signal: null })
  const successor = await startInstance(fleet.env, program)
  client.putIntoService(successor.url)
  await work(fleet)
  expectNoFailures(fleet)
  return successor
}

async function migrateUnderLoad(fleet: UnderLoad, program: string): Promise<void> {
  await expect.poll(() => runProgramAsync(['migrate'], fleet.env, program)).toMatchObject({ status: 0 })
  await work(fleet)
  // A delivery that waits 600 ms for the lock of a migration gets 503, and an erasure 500. The caller sends it again.
  const failures = fleet.load.client.failures.splice(0)
  const unexpected = failures.filter(({ status, body }) => status !== 503 && !body.includes('Step 3: '))
  expect(unexpected.slice(0, FAILURES_SHOWN)).toEqual([])
}

it(
  'loses and repeats nothing while old and new instances run together and one is rolled back',
  async () => {
    const [previous, next] = [await buildPreviousVersion(), assembleNextVersion(temporaryDirectory())]
    const fleet = await startUnderLoad(previous)
    const { faults, first, second, load } = fleet
    await work(fleet)
    expectNoFailures(fleet)
    await migrateUnderLoad(fleet, next)
    const upgraded = await replace(fleet, first, next)
    const rolledBack = await replace(fleet, upgraded, previous)
    await replace(fleet, rolledBack, next)
    await replace(fleet, second, next)
    await load.finish()
    expectNoFailures(fleet)
    console.info({ ...load.acknowledged, statuses: load.client.statuses })
    expect(Math.min(...Object.values(load.acknowledged))).toBeGreaterThan(STEPS)
    expect(await load.compare()).toEqual([])
    expect(load.revokedAndLetIn).toBe(0)
    expect(faults).toEqual([])
  },
  BUILD_TIMEOUT_MS,
)

it(
  'refuses to start the last release with one line once the schema does not support it',
  async () => {
    const [previous, next] = [await buildPreviousVersion(), assembleNextVersion(temporaryDirectory())]
    const { database, env } = await setUpDatabase(previous)
    expect(runProgram(['migrate'], env, { main: next }).status).toBe(0)
    await loadRows(
      database,
      'update schema_compatibility set oldest_supported = (select max(version) from schema_migration)',
    )
    for (const args of [['serve'], ['clients', 'list']]) {
      const { status, stderr } = runProgram(args, env, { main: previous })
      expect(status).toBe(1)
      expect(stderr).toMatch(
        /^oa-audience: the database schema has version \d+ and supports .+ Install the newer .+\n$/,
      )
    }
  },
  BUILD_TIMEOUT_MS,
)
