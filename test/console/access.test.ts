/** What operators of one organization can do with objects of another: each role on each route. */
import { beforeAll, describe, expect, it } from 'vitest'
import { includesRole, ROLES, type Role } from '../../src/operators/actor.ts'
import { addSignedIn, Operator, startConsole } from '../support/console.ts'
import {
  type Objects,
  ROUTES,
  type RouteAccess,
  type RouteRequest,
  routesOf,
} from '../support/console-routes.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { addObjects } from '../support/objects.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant: ours } = await setUpService()
const { app, url } = await startConsole(database)
const theirs = await addTenant(database)

/** Appears in every text of the other organization. */
const MARK = 'Strangers'

const fill = (tenant: Tenant, mark: string) => addObjects({ database, service }, tenant, { mark })

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

it('every route has a line in the list', () => {
  expect(routesOf(app)).toEqual(Object.keys(ROUTES).sort())
})

it('docs/roles.md says who may do what', async () => {
  const actionsOf = (role: Role) => [
    ...new Set(Object.values(ROUTES).flatMap((route) => (route.role === role ? [`- ${route.does}`] : []))),
  ]
  const sections = ROLES.map((role) => `## ${role}\n\n${actionsOf(role).join('\n')}\n`)
  const text = `# What each role may do

A manager may also do what a viewer may, and an owner everything. Operators see the objects of their organizations only: any other object is a
404, and lists leave it out. \`test/console/access.test.ts\` writes this page, and \`dist/docs/console-openapi.json\` of a build has the routes.

${sections.join('\n')}`
  await expect(text).toMatchFileSnapshot('../../docs/roles.md')
})

describe('an operator of one organization', () => {
  let foreign: Objects
  let own: Objects
  const operators = {} as Record<Role, Operator>

  /** Requests about an object of their own with input of the other organization. */
  function ownTargetsOf({ request }: RouteAccess): RouteRequest[] {
    const targetOf = (of: Objects) => request(of).path.split('?')[0]
    const keys = Object.keys(own) as Array<keyof Objects>
    const mixed = keys.map((key) => ({ ...foreign, [key]: own[key] }))
    return mixed
      .filter((of) => targetOf(of) === targetOf(own) && targetOf(of) !== targetOf(foreign))
      .map(request)
      .filter((sent) => JSON.stringify(sent) !== JSON.stringify(request(own)))
  }

  beforeAll(async () => {
    foreign = await fill(theirs, MARK)
    own = await fill(ours, 'Friends')
    const organizationIds = [ours.organizationId]
    for (const role of ROLES)
      operators[role] = await addSignedIn({ url, database }, { role, organizationIds })
  })

  it.each(ROLES)('with the role %s neither sees nor changes anything of another one', async (role) => {
    const before = await rowsOfStrangers()
    for (const [route, access] of Object.entries(ROUTES)) {
      const [method = ''] = route.split(' ')
      const mayCall = includesRole(role, access.role)
      const call = async ({ path, body }: RouteRequest, statuses: unknown) => {
        const { status, text } = await operators[role].call(method, `/api${path}`, body)
        expect([path, text, mayCall ? statuses : [403]]).toEqual([
          path,
          text,
          expect.arrayContaining([status]),
        ])
        expect([path, text]).toEqual([path, expect.not.stringMatching(new RegExp(MARK, 'i'))])
      }
      const expected = access.foreign === 'filtered' ? 200 : access.foreign
      await call(access.request(foreign), [expected])
      // Another filter of the same list finds nothing, also where the usual one is refused.
      for (const request of access.further(foreign)) await call(request, [expected, 200])
      for (const request of ownTargetsOf(access))
        await call(request, [200, 202, 204, 400, 403, 404, 409, 429])
    }
    expect(await rowsOfStrangers()).toBe(before)
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
      ...Object.entries(ROUTES).map(([route, { request }]) => ({ route, ...request(own) })),
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
      const { path, body } = request(foreign)
      const { status } = await new Operator(url).call(route.split(' ')[0] ?? '', `/api${path}`, body)
      expect([route, status]).toEqual([route, 401])
    }
  })
})
