/** Values at the limits of their types, as other programs may load them, and beyond these limits, as clients may send them. */
import { expect, it } from 'vitest'
import type { TSchema } from '../../src/http/typebox.ts'
import { OPERATIONS } from '../../src/operations/all.ts'
import { routeOf } from '../../src/operations/operation.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { listFleet } from '../../src/watch/fleet.ts'
import { confirmStatuses } from '../../src/watch/store-statuses.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { addSignedIn, startConsole } from '../support/console.ts'
import { ROUTES } from '../support/console-routes.ts'
import { addTenant } from '../support/database.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { addObjects } from '../support/objects.ts'
import { eventually } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()

const MAX = '9223372036854775807'

async function tenantWith(columns: Record<string, string>) {
  const tenant = await tenantWithMembers(database, 1, columns)
  return { tenant, id: (await service.members(tenant))[0]?.id }
}

it('a member that another program loaded is changed although its version is the greatest number, and If-Match still detects each change', async () => {
  const { tenant, id } = await tenantWith({ version: MAX })
  const first = await service.put(tenant, id, { tags: ['a'] })
  expect(first.status).toBe(200)
  const ifFirst = { 'if-match': first.headers.get('etag') ?? '' }
  const second = await service.put(tenant, id, { tags: ['b'] }, ifFirst)
  expect(second.status).toBe(200)
  expect(second.headers.get('etag')).not.toBe(first.headers.get('etag'))
  expect((await service.put(tenant, id, { tags: ['c'] }, ifFirst)).status).toBe(412)
  for (const set of [`version = ${MAX}`, `tags = '{d}'`])
    await load(database, `update audience_member set ${set} where channel_oa_id = $1`, [tenant.accountId])
  expect((await service.members(tenant))[0]).toMatchObject({ tags: ['d'] })
  await load(database, `update audience_member set version = ${MAX} where channel_oa_id = $1`, [
    tenant.accountId,
  ])
  const greatest = { 'if-match': `"${MAX}"` }
  expect((await service.put(tenant, id, { tags: ['e'] }, greatest)).status).toBe(200)
})

it.each([
  ['event_count', MAX],
  ['change', MAX],
  ['first_seen_at', `'-infinity'::timestamptz`],
  ['last_seen_at', `'294276-12-31T00:00:00Z'::timestamptz`],
  ['relationship_at', `'infinity'::timestamptz`],
  ['profile_due_at', `'infinity'::timestamptz`],
  ['attributes', `'[1, "x"]'::jsonb`],
  ['tags', 'array[null, $$a$$, null]::text[]'],
  ['tags', `'{{a},{b}}'::text[]`],
])(
  'a member that another program loaded with %s = %s is listed, changed, counted and erased',
  async (column, value) => {
    const { tenant, id } = await tenantWith({ [column]: value })
    const events = [lineEvent('follow', 'U1'), textMessage('U1', 'x')]
    expect((await service.deliver(tenant, events)).status).toBe(200)
    for (const accept of ['application/json', 'text/csv', 'application/x-ndjson']) {
      for (const query of ['', '?updatedSince=2020-01-01T00:00:00Z']) {
        // A walk leaves a change whose time is in the future to the next walk while an older transaction runs.
        const listed = await eventually(
          () => service.call('GET', `/api/audience${query}`, { headers: { ...tenant.headers, accept } }),
          ({ status, text }) => status !== 200 || text.includes('U1'),
        )
        expect([accept, query, listed.status]).toEqual([accept, query, 200])
      }
    }
    const changed = await service.put(tenant, id, { externalId: 'x', tags: ['t'], attributes: { a: 1 } })
    expect([changed.status, changed.json]).toMatchObject([200, { externalId: 'x', tags: ['t'] }])
    expect((await service.deliver(tenant, [lineEvent('unfollow', 'U1')])).status).toBe(200)
    expect(
      await load(database, 'select from event where channel_oa_id = $1 and failure is not null', [
        tenant.accountId,
      ]),
    ).toEqual([])
    await load(database, `update audience_member set display_name = 'n' where channel_oa_id = $1`, [
      tenant.accountId,
    ])
    expect(await migrate(database)).toEqual([])
    expect((await service.erase(tenant, id)).status).toBe(204)
  },
)

it('counts tracked activity of a user id whose count is the greatest number', async () => {
  const tenant = await tenantWithMembers(database, 1, { event_count: '2' })
  await load(database, `insert into tracked_activity values ($1, 'U1', ${MAX}, '-infinity', 'infinity')`, [
    tenant.accountId,
  ])
  expect((await service.track(tenant, [{ type: 'page', userId: 'U1' }])).status).toBe(200)
  expect((await service.members(tenant))[0]).toMatchObject({ userId: 'U1' })
})

it.each(['infinity', '-infinity', '294276-12-31T00:00:00Z'])(
  'shows the fleet if an account has the time %s',
  async (time) => {
    const tenant = await addTenant(database)
    await load(database, 'update official_account set foreign_destination_at = $1 where id = $2', [
      time,
      tenant.accountId,
    ])
    await confirmStatuses(database)
    const fleet = await listFleet(database, null)
    expect(fleet.map(({ id }) => id)).toContain(tenant.accountId)
  },
)

const { url } = await startConsole(database)
const of = await addObjects({ database, service }, await addTenant(database), { mark: 'Extreme' })
const owner = await addSignedIn({ url, database }, { role: 'owner' })

const ID = '9999999999999999999'
const POSITION = '-999999999999999999.1.1'
const TIME = '9999-99-99T99:99:99Z'
const TEXTS: Record<string, string[]> = {
  ...{ after: [ID, POSITION], cursor: [POSITION], from: [TIME], to: [TIME], until: [TIME] },
}
/** Parameters that only some routes have. */
const PARAMETERS = ['account', 'after', 'from', 'operator', 'position', 'to']

/** Copies of the input, in each of which one field has another value. */
function* variantsOf(given: unknown, schema: TSchema, name = ''): Generator<unknown> {
  const { type, anyOf = [], properties = {}, items } = schema as Schema
  for (const each of anyOf) yield* variantsOf(given, each, name)
  for (const [field, ofField] of Object.entries(properties)) {
    const values = (given ?? {}) as Record<string, unknown>
    for (const value of variantsOf(values[field], ofField, field)) yield { ...values, [field]: value }
  }
  if (items) for (const value of variantsOf(undefined, items, name)) yield [value]
  if (type === 'string') yield* TEXTS[name] ?? [ID]
  if (type === 'integer' || type === 'number') yield* [2 ** 31, 1e19]
}
type Schema = { type?: string; anyOf?: TSchema[]; properties?: Record<string, TSchema>; items?: TSchema }

const schemaOf = (value: unknown): TSchema => {
  if (Array.isArray(value)) return { type: 'array', items: schemaOf(value[0]) } as TSchema
  if (value === null || typeof value !== 'object') return { type: typeof value } as TSchema
  const properties = Object.entries(value).map(([name, field]) => [name, schemaOf(field)])
  return { type: 'object', properties: Object.fromEntries(properties) } as TSchema
}

/** What the route of an operation takes; of another route, what its request has, and each of the parameters. */
function* requestsOf(route: string): Generator<{ method: string; path: string; body?: unknown }> {
  const [method = ''] = route.split(' ')
  const { path, body } = ROUTES[route]?.request?.(of) ?? { path: '' }
  if (path === '') return
  const { pathname, searchParams } = new URL(path, url)
  const parameters = Object.fromEntries(searchParams)
  const operation = OPERATIONS.find((each) => {
    const made = routeOf(each)
    return route === `${made.method} ${made.path.replace(':id', ':')}`
  })
  const properties = operation?.input
  if (method === 'POST' && (body !== undefined || operation))
    for (const changed of variantsOf(body, properties ? ({ properties } as TSchema) : schemaOf(body)))
      yield { method, path, body: changed }
  const names = operation
    ? [
        ...(method === 'GET' ? Object.keys(operation.input) : []),
        ...(operation.way === 'list' ? ['after'] : []),
      ]
    : [...new Set([...searchParams.keys(), ...(method === 'GET' ? PARAMETERS : [])])]
  for (const name of names)
    for (const text of TEXTS[name] ?? [ID])
      yield { method, path: `${pathname}?${new URLSearchParams({ ...parameters, [name]: text })}`, body }
}

it.each([
  ['organizationIds/0', '/operators', { email: 'e@example.com', role: 'viewer', organizationIds: [ID] }],
  ['version', `/accounts/${of.account}/update-member`, { member: of.member, version: ID, update: {} }],
  ['account', `/segments?account=${ID}`],
  ['from', `/activity?from=${TIME}`],
  ['after', `/accounts/${of.account}/timeline?user=${of.member}&after=${POSITION}`],
])(
  'input of the console beyond the range of its type is a 400 that names %s',
  async (path, to, body?: object) => {
    const { status, json } = await owner.call(body ? 'POST' : 'GET', `/api${to}`, body)
    expect([status, json.details]).toEqual([400, [{ path, message: expect.any(String) }]])
  },
)

it('input of the console beyond the range of its type never fails a request: each route refuses it, or takes the limit', async () => {
  const requests = Object.keys(ROUTES).flatMap((route) => [...requestsOf(route)])
  const failed: unknown[] = []
  const sendNext = async (): Promise<void> => {
    const request = requests.pop()
    if (request === undefined) return
    const { status } = await owner.call(request.method, `/api${request.path}`, request.body)
    // Counts at the same time may be 503.
    if (status === 500) failed.push(request)
    return sendNext()
  }
  await Promise.all(Array.from({ length: 8 }, sendNext))
  expect(failed).toEqual([])
})
