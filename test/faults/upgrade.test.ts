/** An upgrade from the last release, one instance after the other under load, with one of them rolled back on the way. */
import { expect, it, onTestFinished } from 'vitest'
import type { PostgresDatabase } from '../../src/postgres/postgres-database.ts'
import { freePort } from '../../tools/prove/service.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { FailoverLoad } from '../support/failover-load.ts'
import { load as loadRows } from '../support/load.ts'
import { assembleNextVersion, buildPreviousVersion } from '../support/previous-version.ts'
import {
  becomesWell,
  eventually,
  runCommand,
  runCommandAsync,
  type ServiceProcess,
  spawnService,
  temporaryDirectory,
} from '../support/process.ts'
import { UpgradeLoad } from '../support/upgrade-load.ts'

/** Building takes a minute or two, and more on a slow network. */
const BUILD_TIMEOUT_MS = 900_000
/** Events and pages between two steps of the upgrade, so that each state of the fleet is under load. */
const STEP_EVENTS = 300
const FAILURES_SHOWN = 3

const NO_LIMITS = {
  RATE_LIMIT_MAX: '0',
  TRACKING_ADDRESS_EVENTS_PER_MINUTE: '0',
  TRACKING_ADDRESS_BYTES_PER_MINUTE: '0',
  TRACKING_KEY_EVENTS_PER_MINUTE: '0',
  TRACKING_KEY_BYTES_PER_MINUTE: '0',
}

/** Two instances on ports of their own, which every version that runs there takes over. */
class Fleet {
  readonly #env: Record<string, string>
  readonly #processes = new Map<string, ServiceProcess>()

  constructor(env: Record<string, string>) {
    this.#env = env
  }

  async start(url: string, program: string): Promise<void> {
    const { port } = new URL(url)
    this.#processes.set(url, await spawnService({ ...this.#env, PORT: port }, program))
    await becomesWell(url)
  }

  /** Ends an instance as an orchestrator does. It answers what it has accepted. */
  async stop(url: string): Promise<void> {
    const running = this.#processes.get(url)
    running?.child.kill('SIGTERM')
    expect(await running?.exited).toEqual({ code: 0, signal: null })
  }
}

async function setUpDatabase(previous: string) {
  const { database, connection } = await createTestDatabase('template0')
  onTestFinished(() => database.close())
  const env = { ...NO_LIMITS, DATABASE_URL: urlOf(connection) }
  expect(await runCommandAsync(['migrate'], env, previous)).toMatchObject({ status: 0, stderr: '' })
  return { database, env }
}

async function addReceiver(database: PostgresDatabase, { accountId }: Tenant, format: 'line' | 'members') {
  const { url, received } = await startReceiver()
  await database.query(
    'insert into endpoint (channel_oa_id, url, format, allow_private_network) values ($1, $2, $3, true)',
    [accountId, url, format],
  )
  return received
}

it(
  'loses and repeats nothing while old and new instances run together and one is rolled back',
  async () => {
    const [previous, next] = [await buildPreviousVersion(), assembleNextVersion(temporaryDirectory())]
    const { database, env } = await setUpDatabase(previous)
    const tenant = await addTenant(database)
    const received = {
      line: await addReceiver(database, tenant, 'line'),
      members: await addReceiver(database, tenant, 'members'),
    }
    const [first, second] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`]
    const fleet = new Fleet(env)
    await Promise.all([fleet.start(first, previous), fleet.start(second, previous)])

    const load = new FailoverLoad([first, second], tenant, database)
    const further = new UpgradeLoad(load.client, tenant)
    onTestFinished(() => load.client.close())
    load.start()
    await further.start()
    const isUnderLoad = async () => {
      const target = load.acknowledged.events + STEP_EVENTS
      const { walks, feeds } = further.acknowledged
      await eventually(
        async () => [load.acknowledged.events, further.acknowledged.walks, further.acknowledged.feeds],
        ([events = 0, walked = 0, fed = 0]) => events >= target && walked > walks && fed > feeds,
      )
      // No request needs a retry: an instance leaves the load balancer before it is stopped.
      expect(load.client.failures.slice(0, FAILURES_SHOWN)).toEqual([])
    }
    const replace = async (url: string, program: string) => {
      load.client.takeOutOfService(url)
      await fleet.stop(url)
      await fleet.start(url, program)
      load.client.putIntoService(url)
      await isUnderLoad()
    }

    await isUnderLoad()
    await eventually(
      () => runCommandAsync(['migrate'], env, next),
      ({ status }) => status === 0,
    )
    await isUnderLoad()
    await replace(first, next)
    await replace(first, previous)
    await replace(first, next)
    await replace(second, next)
    await Promise.all([load.finish(), further.finish()])

    const remaining = 'select from endpoint_delivery'
    await eventually(
      () => loadRows(database, remaining),
      (rows) => rows.length === 0,
    )
    console.info({ ...load.acknowledged, ...further.acknowledged, statuses: load.client.statuses })
    expect(load.client.failures).toEqual([])
    expect(await load.compare()).toEqual({
      missing: 0,
      twice: 0,
      lostUpdates: 0,
      erasedAndBack: 0,
      revokedAndLetIn: 0,
    })
    expect(await further.compare(database, received)).toEqual({
      missing: 0,
      twice: 0,
      wrongRelationships: 0,
      wrongWalks: 0,
      missedChanges: 0,
      unsentEvents: 0,
      unsentMembers: 0,
    })
  },
  BUILD_TIMEOUT_MS,
)

it(
  'refuses to start the last release with one line once the schema does not support it',
  async () => {
    const [previous, next] = [await buildPreviousVersion(), assembleNextVersion(temporaryDirectory())]
    const { database, env } = await setUpDatabase(previous)
    expect(runCommand(['migrate'], env, { main: next }).status).toBe(0)
    await loadRows(
      database,
      'update schema_compatibility set oldest_supported = (select max(version) from schema_migration)',
    )
    for (const args of [['serve'], ['clients', 'list']]) {
      const { status, stderr } = runCommand(args, env, { main: previous })
      expect(status).toBe(1)
      expect(stderr).toMatch(
        /^oa-audience: the database schema has version \d+ and supports .+ Install the newer .+\n$/,
      )
    }
  },
  BUILD_TIMEOUT_MS,
)
