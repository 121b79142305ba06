/** What operators of one organization can do with objects of another: each role on each route. */
import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { INT64_MAX, INT64_MIN } from '../../src/http/path-id.ts'
import { statementsSent } from '../../src/observability/facts.ts'
import { includesRole, ROLES, type Role } from '../../src/operators/actor.ts'
import type { Statement } from '../../src/postgres/statement.ts'
import { addSignedIn, Operator, startConsole } from '../support/console.ts'
import { type Objects, ROUTES, routesOf } from '../support/console-routes.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { addObjects } from '../support/objects.ts'
import { setUpService } from '../support/service.ts'
import { loadStatements } from '../support/statements.ts'

const { database, service, tenant: ours } = await setUpService()
const { app, url } = await startConsole(database)
const theirs = await addTenant(database)

/** Appears in every text of the other organization. */
const MARK = 'Strangers'

/** Only the request of the other organization is searched. */
const REQUEST_ID = randomUUID()
const fill = (tenant: Tenant, mark: string) =>
  addObjects({ database, service }, tenant, {
    mark,
    requestId: mark === MARK ? REQUEST_ID : randomUUID(),
  })

/** Every row that belongs to the other organization, except its hourly counts, which the service writes seconds after a delivery. */
async function rowsOfStrangers(): Promise<string> {
  const { accountId, organizationId } = theirs
  const tables = await load<{ name: string }>(
    database,
    `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid
      where c.relkind in ('r', 'p') and not c.relispartition and a.attname = 'channel_oa_id'
        and c.relname <> 'delivery_hour' order by 1`,
  )
  const rows: unknown[] = []
  for (const { name } of tables)
    rows.push(
      await load(database, `select t::text as text from ${name} t where channel_oa_id = $1 order by 1`, [
        accountId,
      ]),
    )
  for (const [table, column, value] of [
    ['official_account', 'id', accountId],
    ['organization', 'id', organizationId],
    ['notification_channel', 'organization_id', organizationId],
  ])
    rows.push(
      await load(database, `select t::text as text from ${table} t where ${column} = $1 order by 1`, [value]),
    )
  rows.push(await load(database, 'select email, role, status from operator order by id'))
  rows.push(await load(database, 'select id, status from api_client order by id'))
  return JSON.stringify(rows, (_name, value) => (typeof value === 'bigint' ? String(value) : value))
}

/** The year 2200. */
const LATEST_US = 7_258_118_400_000_000n

/** Values that find something of the other organization if all organizations are visible, by statement. */
async function valuesFor(foreign: Objects): Promise<(ids: bigint[] | null) => Record<string, unknown[]>> {
  const { accountId } = theirs
  await load(database, `update official_account set channel_id = '1651111111' where id = $1`, [accountId])
  const [event] = await load<{ key: string }>(
    database,
    'select key from event_key where channel_oa_id = $1',
    [accountId],
  )
  // More are examined than there are, so no row has a position alone.
  const listed = (ids: bigint[] | null, user: string | null, failure: string | null, own: unknown[] = []) => [
    ...[1_000_000, ids, null, user, failure, failure === null ? null : false, 10],
    ...[0n, LATEST_US, LATEST_US, 1_000_000n, ...own],
  ]
  const result = `insert into changed_account (job_id, channel_oa_id, object_id) values ($1, $2, 1)`
  await load(database, result, [foreign.job, accountId])
  const own = `update job set operator_id = null, actor = 'token', finished_at = now() where id = $1`
  await load(database, own, [foreign.job])
  return (ids) => ({
    'cancel-job': [ids, null, foreign.job],
    'count-unapplied': [accountId, null, 10, ids],
    'events-by-key': listed(ids, null, null, [[accountId], event?.key]),
    'events-in-window': listed(ids, `U-${MARK}`, null),
    'events-of-accounts': listed(ids, null, null, [[accountId]]),
    'events-of-person': listed(ids, `U-${MARK}`, null, [null]),
    'failed-events': listed(ids, null, MARK),
    'failed-events-of-accounts': listed(ids, null, MARK, [[accountId]]),
    'list-activity-of-object': [ids, INT64_MAX, 10, 'account', String(accountId), accountId],
    'list-activity-of-operator': [ids, INT64_MAX, 10, null, null, null, foreign.operator],
    'list-activity-of-request': [ids, INT64_MAX, 10, REQUEST_ID],
    'lock-account-of-operator': [accountId, ids],
    'select-account-contents': [accountId, ids],
    'select-endpoints': [accountId, null, INT64_MIN, null, ids],
    'list-results-of-job-accounts': [foreign.job, null, ids, INT64_MIN, 10],
    'select-access-of-client': [foreign.client, accountId, ids],
    'take-secrets-of-job-accounts': [foreign.job, null, 'token', ids],
    'select-accounts-of-channels': [['1651111111'], ids],
    'select-memberships': [ids, `U-${MARK}`, 10],
    'select-next-unapplied': [accountId, null, INT64_MIN, INT64_MIN, 10, ids],
    'select-organizations-by-id-or-name': [[], [MARK], ids],
    'select-replayable-endpoint': [foreign.endpoint, ids, 10],
  })
}

it('every route has a line in the list', () => {
  expect(routesOf(app)).toEqual(Object.keys(ROUTES).sort())
})

it('docs/roles.md says who may do what', async () => {
  const rowsOf = (role: Role) =>
    Object.entries(ROUTES)
      .filter(([, route]) => route.role === role)
      .map(([route, { does }]) => `| ${does} | \`${route}\` |`)
  const sections = ROLES.map(
    (role) => `## ${role}\n\n| action | route |\n|---|---|\n${rowsOf(role).join('\n')}\n`,
  )
  const text = `# What each role may do

A manager may also do what a viewer may, and an owner everything. Routes are below \`/api\`, and \`:\` is an id. Operators see the objects of
their organizations only: any other object is a 404, and lists leave it out. \`test/console/access.test.ts\` writes this page.

${sections.join('\n')}`
  await expect(text).toMatchFileSnapshot('../../docs/roles.md')
})

describe('an operator of one organization', () => {
  let foreign: Objects
  const operators = {} as Record<Role, Operator>

  beforeAll(async () => {
    foreign = await fill(theirs, MARK)
    await fill(ours, 'Friends')
    const organizationIds = [ours.organizationId]
    for (const role of ROLES)
      operators[role] = await addSignedIn({ url, database }, { role, organizationIds })
  })

  const executed = new Set<string>()

  it.each(ROLES)('with the role %s neither sees nor changes anything of another one', async (role) => {
    const before = await rowsOfStrangers()
    const stopRecording = statementsSent.subscribe(({ statements }) => {
      for (const name of statements) executed.add(name)
    })
    for (const [route, access] of Object.entries(ROUTES)) {
      const request = access.request?.(foreign)
      if (request === undefined) continue
      const [method = ''] = route.split(' ')
      const { status, text } = await operators[role].call(method, `/api${request.path}`, request.body)
      const expected = access.foreign === 'filtered' ? 200 : access.foreign
      expect([route, status, text.slice(0, 300)]).toEqual([
        route,
        includesRole(role, access.role) ? expected : 403,
        expect.anything(),
      ])
      expect([route, text]).toEqual([route, expect.not.stringMatching(new RegExp(MARK, 'i'))])
    }
    stopRecording()
    expect(await rowsOfStrangers()).toBe(before)
  })

  it('finds nothing of another one by the other statements that filter organizations', async () => {
    const filtered = (await loadStatements()).filter(
      ({ name, text }) => text.includes('visible(') && !executed.has(name),
    )
    const values = await valuesFor(foreign)
    expect(filtered.map(({ name }) => name).sort()).toEqual(Object.keys(values([])).sort())
    // A count of 0, or a position alone, is nothing.
    const find = async (statement: Statement, ids: bigint[] | null) => {
      const rows = await database.query(statement, values(ids)[statement.name])
      return rows.filter((row) => Object.values(row).some((value) => value !== null && value !== 0))
    }
    for (const statement of filtered) {
      expect([statement.name, await find(statement, [ours.organizationId])]).toEqual([statement.name, []])
      expect([statement.name, await find(statement, null)]).not.toEqual([statement.name, []])
    }
  })

  it('makes no change from another page, with any of the forms', async () => {
    const own = await fill(await addTenant(database), 'Forged')
    const owner = await addSignedIn({ url, database }, { role: 'owner' })
    const { cookie } = owner
    const forgeries = [
      { cookie, origin: 'https://evil.example', 'sec-fetch-site': 'cross-site', 'x-console': '1' },
      { cookie, origin: url, 'content-type': 'text/plain' },
    ]
    const forms = [
      ...Object.entries(ROUTES).map(([route, { request }]) => ({ route, ...request?.(own) })),
      ...['/sign-in', '/sign-out', '/invitation', '/invitation/accept', '/password'].map((path) => ({
        ...{ route: `POST ${path}`, path, body: {} },
      })),
    ].filter(({ route, path }) => route.startsWith('POST') && path !== undefined)
    for (const { route, path = '', body } of forms) {
      const prefix = ROUTES[route] === undefined ? '' : '/api'
      for (const headers of forgeries) {
        const { status } = await owner.call('POST', `${prefix}${path}`, body, headers)
        expect([route, status]).toEqual([route, 403])
      }
    }
  })

  it('sees nothing without a session', async () => {
    for (const [route, { request }] of Object.entries(ROUTES)) {
      const { path, body } = request?.(foreign) ?? { path: route.split(' ')[1] ?? '' }
      const { status } = await new Operator(url).call(route.split(' ')[0] ?? '', `/api${path}`, body)
      expect([route, status]).toEqual([route, 401])
    }
  })
})
