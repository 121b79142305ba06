/** The plans of all statements over tenants' rows, on small tables and on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { SCAN_MAX } from '../../src/audience/list-statements.ts'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { statements, unnamed } from '../../src/postgres/statement.ts'
import { makePartitions } from '../../src/upkeep/maintenance.ts'
import { type SimulatedPlatform, simulatePlatform } from '../../tools/simulator/platform.ts'
import { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, createTestDatabase, type Tenant, urlOf } from '../support/database.ts'
import { addPeopleAndObjects, useEverything } from '../support/everything.ts'
import { load } from '../support/load.ts'
import { EXPLAIN_OPTIONS, openPlanner, type Plan, readPlan } from '../support/plans.ts'
import { startApp } from '../support/service.ts'
import { FOR_ALL_ACCOUNTS, missingTenantStatements } from '../support/statements.ts'
import { startWireLog } from '../support/wire-log.ts'

/** A database without autovacuum, so that only the test collects statistics. */
async function createUnanalyzedDatabase() {
  const { database, connection } = await createTestDatabase()
  await database.session(makePartitions)
  await load(
    database,
    `do $$ declare name text; begin
       for name in select oid::regclass from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
         execute format('alter table %s set (autovacuum_enabled = false)', name);
       end loop; end $$`,
  )
  return { database, connection }
}

/** An account with that many members, each with an event, its key and tracked activity. */
async function addGrownTenant(
  database: TextDatabase,
  count: number,
  platform?: SimulatedPlatform,
): Promise<Tenant> {
  const tenant = await addTenant(
    database,
    platform && { channelAccessToken: platform.account.channelAccessToken },
  )
  const { accountId, organizationId } = tenant
  await load(
    database,
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, relationship, tags, external_id,
                                  profile_due_at)
     select $1, $2, 'M' || i, 'Bo ' || i % 100, case when i % 2 = 0 then 'following' else 'blocked' end,
            case when i % 3 = 0 then '{new}' else '{}' end::text[], 'C' || i, null
       from generate_series(1, $3::int) i`,
    [accountId, organizationId, count],
  )
  await load(
    database,
    `with added as (
       insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, message_id, payload)
       select $1, 'line', 'message', gen_random_uuid(), now(), user_id, 'M' || id, '{}'
         from audience_member where channel_oa_id = $1 returning key, user_id, occurred_at
     ), keys as (
       insert into event_key (channel_oa_id, key) select $1, key from added
     )
     insert into tracked_activity (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at)
     select $1, user_id, 1, occurred_at, occurred_at from added`,
    [accountId],
  )
  return tenant
}

/** Accounts of other organizations, as a service has them that has run for a while. */
async function addAccounts(database: TextDatabase, count: number): Promise<void> {
  await load(
    database,
    `with added as (
       insert into organization (name) select 'Agency ' || i from generate_series(1, $1::int) i returning id
     ), account as (
       insert into official_account (organization_id, name, channel_id, channel_secret, bot_user_id)
       select id, 'OA ' || id, 'C' || id, repeat('0', 32), 'B' || id from added returning id
     ), counted as (
       insert into delivery_hour (channel_oa_id, hour, source, deliveries, last_at)
       select id, date_trunc('hour', now()) - hours * interval '1 hour', 'line', 1, now() - hours * interval '1 hour'
         from account cross join unnest(array[0, 2, 26]) hours
     ), days as (
       insert into account_day (channel_oa_id, day, following)
       select id, current_date - age, 100 from account cross join unnest(array[0, 1, 2, 8, 20]) age
     ), forwarding as (
       insert into endpoint (channel_oa_id, url) select id, 'https://example.com/' from account returning id, channel_oa_id
     )
     insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, failed_at)
     select channel_oa_id, id, array[gen_random_uuid()], now() from forwarding`,
    [count],
  )
  await load(database, `update account_check set due_at = 'infinity', count_due_at = 'infinity'`)
}

/** About members, events and deliveries. Other routes list all accounts or all endpoints, or count what a removal would delete. */
const ROUTES =
  /accounts\/:(\/(\w+-)?(members?|timeline|memberships|charts|people|audience|events|person|followers|matching|suggestions).*)?$|events|search|charts|rehearse|deliveries/

/** Starts the service on new sessions, which keep their plans. */
async function startExplained(connection: Connection, platform: SimulatedPlatform) {
  const log = await startWireLog(connection)
  const target = { ...log.connection, options: EXPLAIN_OPTIONS }
  const database = new TextDatabase(target, () => undefined)
  const direct = new TextDatabase(connection, () => undefined)
  for (const each of [database, direct]) each.markReady()
  const service = await startApp(database)
  // The log cannot read the response to a request for TLS.
  const options = `options=${encodeURIComponent(EXPLAIN_OPTIONS)}&sslmode=disable`
  const env = { DATABASE_URL: `${urlOf(log.connection)}&${options}` }
  return {
    /** Uses everything. Returns the plans of all statements of the service, in the order of their execution. */
    plansOfEverything: async (tenant: Tenant): Promise<Plan[]> => {
      const objects = await addPeopleAndObjects({ service, direct }, tenant, `Plan${tenant.accountId}`)
      log.notices = []
      await useEverything({
        ...{ service, database, direct, env, platform, tenant, objects },
        routes: ROUTES,
      })
      return log.notices.map(readPlan).filter((plan) => plan !== null)
    },
    end: async () => {
      await service.app.close()
      await Promise.all([database.close(), direct.close()])
      log.close()
    },
  }
}

/**
 * The plans of everything with this number of members, first without statistics, then with them, then on sessions that used
 * everything before when the tables were empty.
 */
async function plansBySize({
  membersOfTenant,
  members,
  accounts = 0,
}: {
  membersOfTenant: number
  members: number
  /** Other accounts, each with an endpoint that has a failed delivery. */
  accounts?: number
}) {
  const { database, connection } = await createUnanalyzedDatabase()
  const platform = await simulatePlatform()
  const early = await startExplained(connection, platform)
  await early.plansOfEverything(await addGrownTenant(database, 0, platform))
  const tenants = []
  for (let i = 0; i < 3; i += 1) tenants.push(await addGrownTenant(database, membersOfTenant, platform))
  const [first, second, third] = tenants as [Tenant, Tenant, Tenant]
  await addGrownTenant(database, members - 3 * membersOfTenant)
  await addAccounts(database, accounts)

  const before = await startExplained(connection, platform)
  const unanalyzed = await before.plansOfEverything(first)
  await load(database, 'analyze')
  const after = await startExplained(connection, platform)
  const analyzed = await after.plansOfEverything(second)
  const replanned = await early.plansOfEverything(third)
  await Promise.all([early.end(), before.end(), after.end(), platform.close()])
  await database.close()
  return { unanalyzed, analyzed, replanned }
}

/**
 * Tables with few rows: their plans do not matter. PostgreSQL scans `endpoint` as a whole while it has some dozens of rows, and
 * plans again when autovacuum has found more.
 */
const SMALL_TABLES =
  /^(Seq Scan on endpoint$|endpoint_(?!delivery)|api_client|api_key|official_account|organization|activity|job|notification)/

/**
 * How a plan reads the tables that grow: the indexes, and tables that it reads without one. A partition and its indexes stand
 * for all partitions.
 */
function shapeOf({ steps }: Plan): string {
  const reads = steps
    .filter(({ node }) => node.endsWith('Scan') && node !== 'Bitmap Heap Scan')
    .map(({ node, relation, index }) => index ?? (relation === null ? '' : `${node} on ${relation}`))
    .filter((read) => read !== '' && !SMALL_TABLES.test(read))
    .map((read) => read.replace(/(event|event_key)_(\d+|default|hashed)/, '$1'))
    // The default partition has a second index that finds one key.
    .map((read) => read.replace('event_key_key', 'event_key_pkey'))
  return [...new Set(reads)].sort().join(', ')
}

/** The shapes of each statement's plans. Statements inside functions without a source text look alike. */
function shapesOf(plans: Plan[]): Map<string, string> {
  const shapes = new Map<string, Set<string>>()
  for (const plan of plans.filter((each) => each.text !== '' && !isCount(each))) {
    const text = plan.text.trim().replaceAll(/\s+/g, ' ')
    shapes.set(text, (shapes.get(text) ?? new Set()).add(shapeOf(plan)))
  }
  return new Map([...shapes].map(([text, found]) => [text, [...found].sort().join(' or ')]))
}

/** Compares the statements that both have executed: some inside functions depend on the rows that they find. */
function compareShapes(plans: Plan[], others: Plan[]) {
  const [shapes, otherShapes] = [shapesOf(plans), shapesOf(others)]
  const common = [...shapes.keys()].filter((text) => otherShapes.has(text))
  return common
    .map((text) => ({ text, shape: shapes.get(text), other: otherShapes.get(text) }))
    .filter(({ shape, other }) => shape !== other)
}

/** Counting all members of an account may use any index, and reads all of it: for the command line and the monitor alone. */
const isCount = ({ text }: Plan) =>
  /^\s*(with counted as \(\s*)?select count\(\*\)[^;]*? from audience_member where channel_oa_id = \$1\s*(\)|$)/.test(
    text,
  )

/** The function that counts the failed deliveries of each endpoint for their list. */
const isListOfEndpoints = ({ steps }: Plan) => steps.some(({ index }) => index === 'endpoint_delivery_failed')

/** Steps that read or sort more rows than one statement may. */
const largeSteps = (plans: Plan[]) =>
  plans
    .filter((plan) => !isCount(plan) && !isListOfEndpoints(plan))
    .flatMap(({ text, steps }) => steps.map((step) => ({ ...step, text: text.slice(0, 500) })))
    .filter(({ rows }) => rows > SCAN_MAX + 1)

/**
 * Commands in sessions without time limits, which read what they must. Counts of members, which are not due here. And what the
 * sender reads: its plans are not among the notices. The log of changes finds the member of a row by its primary key.
 */
const NOT_PLANNED =
  /^(delete-rows-of-account-.*|select-(account-contents|pending-erasures-of-account)|count-(audience|account-days|source-days)|load-delivery-contents|list-activity.*)$/

/**
 * Commands in sessions of their own, which plan each statement for its arrays. Statements that find events by their ids, with an index of
 * blocks that autovacuum summarizes, which is off here. And the search of accounts, and the list of endpoints, which read all of them.
 */
const EXCLUDED =
  /^(compare-erasures|select-user-ids-by-hash|.*-again|select-event|events-in-window|has-events|last-event-id|select-deliveries-of-event|search-visible-accounts|select-endpoints)$/

const normalized = (text: string) => text.replaceAll(/\s+/g, ' ').trim()

const excludedTexts = () =>
  new Set(
    [...statements.values()].filter(({ name }) => EXCLUDED.test(name)).map(({ text }) => normalized(text)),
  )

it('plans the same without statistics and with them, and reads a bounded part of 100,000 members and 10,000 accounts', async () => {
  const sizes = { membersOfTenant: 10_000, members: 100_000, accounts: 10_000 }
  const { unanalyzed, analyzed, replanned } = await plansBySize(sizes)
  const excluded = excludedTexts()
  const ofRequests = (plans: Plan[]) => plans.filter(({ text }) => !excluded.has(normalized(text)))
  for (const plans of [unanalyzed, replanned]) {
    expect(compareShapes(ofRequests(plans), ofRequests(analyzed))).toEqual([])
    const planned = new Set(plans.map(({ text }) => text))
    const missing = await missingTenantStatements(({ text }) => planned.has(text))
    const exempt = (name: string) => NOT_PLANNED.test(name) || FOR_ALL_ACCOUNTS.includes(name)
    expect(missing.filter((name) => !exempt(name))).toEqual([])
  }
  expect(largeSteps(ofRequests([...unanalyzed, ...analyzed, ...replanned]))).toEqual([])
})

const endpointsOf = unnamed(`select * from endpoints_of(array[$1::bigint], array['follow'], array[$2::text])`)
const applySources = unnamed(
  `select apply_sources(array[$1::bigint], array[gen_random_uuid()], array[now()], array[$2::text], array['following'],
                        array['qr-shop'], array[null::text], array[null::text])`,
)

it('functions that were planned on empty tables read one member per person when an account has 20,000', async () => {
  const { database, connection } = await createUnanalyzedDatabase()
  const planner = await openPlanner(connection)
  const rowsOf = async ({ accountId }: Tenant) => {
    await load(
      database,
      `insert into endpoint (channel_oa_id, url, condition) select $1, 'https://example.com/', '{"tagsAny": ["new"]}'`,
      [accountId],
    )
    const steps = []
    for (const statement of [endpointsOf, applySources])
      steps.push(...(await planner.stepsOf({ statement, values: [accountId, 'M3'] })))
    return steps.filter(({ relation }) => relation === 'audience_member').map(({ rows }) => rows)
  }
  await rowsOf(await addGrownTenant(database, 0))
  const rows = await rowsOf(await addGrownTenant(database, 20_000))
  expect(rows.filter((read) => read > 0).length).toBeGreaterThan(3)
  expect(Math.max(...rows)).toBe(1)
  await planner.end()
  await database.close()
})
