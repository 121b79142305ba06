/** Every route of the console's JSON: the least role that may use it, and what it does with objects of another organization. */
import type { FastifyInstance } from 'fastify'
import { OPERATIONS } from '../../src/operations/all.ts'
import { routeOf } from '../../src/operations/operation.ts'
import type { Role } from '../../src/operators/actor.ts'
import { printedRoutes } from './routes.ts'

/** Ids of objects of one organization. */
export interface Objects {
  organization: string
  account: string
  userId: string
  member: string
  endpoint: string
  delivery: string
  segment: string
  client: string
  key: string
  event: string
  /** webhook event id of LINE */
  eventKey: string
  /** why the event could not be applied */
  failure: string
  /** of a row of the activity log */
  requestId: string
  job: string
  channel: string
  operator: string
}

export interface RouteRequest {
  path: string
  body?: unknown
}

export interface RouteAccess {
  role: Role
  /** for the table of docs/roles.md */
  does: string
  /** a valid request about these objects */
  request: (of: Objects) => RouteRequest
  /** other requests, which other statements serve */
  further: (of: Objects) => RouteRequest[]
  /** the status for objects of another organization; `filtered`: 200, without them */
  foreign: 404 | 400 | 403 | 'filtered'
}

const routeFor =
  (role: Role) =>
  (
    does: string,
    request: RouteAccess['request'],
    foreign: RouteAccess['foreign'] = 404,
    further: RouteAccess['further'] = () => [],
  ): RouteAccess => ({ role, does, request, foreign, further })
const [viewer, manager, owner] = [routeFor('viewer'), routeFor('manager'), routeFor('owner')]

const ofAccount = (rest: string) => (of: Objects) => ({ path: `/accounts/${of.account}${rest}` })

const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString()

/** Input that each operation needs, about objects of one organization. */
export const INPUTS: Record<string, (of: Objects) => object> = {
  'organization.add': () => ({ name: 'taken' }),
  'organization.rename': () => ({ name: 'taken' }),
  'organization.remove': () => ({ name: 'Strangers' }),
  'account.add': ({ organization }) => ({ organization, name: 'x' }),
  'account.update': () => ({ name: 'taken' }),
  'account.mute': () => ({ until: inDays(1), reason: 'a planned change' }),
  'account.remove': () => ({ name: 'Strangers' }),
  'account.list': () => ({ q: 'Strangers' }),
  'account.set-webhook': () => ({ replaces: null }),
  'fleet.charts': ({ account }) => ({ ids: account }),
  'report.show': ({ account }) => ({ from: '2026-11-01', to: '2026-11-30', account, by: 'account' }),
  'account.matching': () => ({ condition: '{"tagsAny":["vip"]}' }),
  'endpoint.rehearse-new': ({ account }) => ({ account, change: '{"replies":true}' }),
  'account.member': ({ member }) => ({ user: member }),
  'account.timeline': ({ member }) => ({ user: member }),
  'account.memberships': ({ userId }) => ({ userId }),
  'account.update-member': ({ member }) => ({ member, version: '1', update: { tags: ['taken'] } }),
  'account.erase-member': ({ member }) => ({ member }),
  'account.erase-person': ({ userId, account }) => ({ userId, accounts: [account] }),
  'account.tag-members': () => ({ filters: {}, addTags: ['taken'], removeTags: [], expectedCount: 1 }),
  'account.erase-members': () => ({ filters: {}, expectedCount: 1 }),
  'account.import-members': () => ({ format: 'csv', size: 10 }),
  'endpoint.list': ({ account }) => ({ account }),
  'endpoint.deliveries': () => ({ status: 'pending' }),
  'endpoint.delivery': ({ delivery }) => ({ delivery }),
  'endpoint.add': ({ account }) => ({ account, url: 'https://taken.example/hook' }),
  'endpoint.update': () => ({ name: 'taken' }),
  'endpoint.of-person': ({ account }) => ({ account, user: 'Uany' }),
  'endpoint.rehearse': () => ({ change: '{"replies":true}' }),
  'endpoint.count-replay': () => ({ from: '2026-01-01', to: '2026-01-02' }),
  'endpoint.replay': () => ({ from: '2026-01-01', to: '2026-01-02' }),
  'endpoint.resend': () => ({ filters: {} }),
  'segment.list': ({ account }) => ({ account }),
  'segment.add': ({ account }) => ({ account, name: 'taken', condition: {} }),
  'segment.update': () => ({ name: 'taken' }),
  'segment.sync': () => ({ mode: 'on' }),
  'event.list': ({ account }) => ({ account }),
  'event.reasons': ({ account }) => ({ account }),
  'event.retry-all': ({ account }) => ({ account }),
  'event.set-aside': () => ({ reason: 'taken' }),
  'event.set-aside-all': ({ account }) => ({ account, reason: 'taken' }),
  'client.add': ({ account }) => ({ name: 'x', account }),
  'key.add': ({ client, account }) => ({ client, account }),
  'job.verify-accounts': ({ account }) => ({ accounts: [account] }),
  'job.mute-accounts': ({ account }) => ({
    accounts: [account],
    until: inDays(1),
    reason: 'a planned change',
  }),
  'job.unmute-accounts': ({ account }) => ({ accounts: [account] }),
  'job.change-endpoints': ({ account }) => ({
    ...{ accounts: [account], endpoint: 'https://taken.example/hook', action: 'pause' },
  }),
  'job.add-endpoints': ({ account }) => ({ accounts: [account], url: 'https://taken.example/hook' }),
  'job.add-keys': ({ account, client }) => ({ accounts: [account], client }),
  'channel.add': ({ organization }) => ({
    ...{ organization, format: 'slack', target: 'https://chat.example/taken' },
  }),
  'channel.update': () => ({ name: 'taken' }),
  'operator.add': ({ organization }) => ({
    ...{ email: 'taken@example.com', name: null, role: 'viewer', organizationIds: [organization] },
  }),
  'operator.update': () => ({ role: 'owner' }),
}

/** Inputs of the same operations that other statements serve. */
const FURTHER_INPUTS: Record<string, (of: Objects) => object[]> = {
  // The second one is refused because of the first one.
  'account.add': ({ organization }) => Array(2).fill({ organization, name: 'x', channelId: '1650000001' }),
  'account.members': () => FILTERS,
  'account.member': ({ userId }) => [{ user: userId }],
  'account.timeline': ({ userId }) => [{ user: userId }],
  'account.count-members': () => FILTERS,
  'account.tag-members': () =>
    FILTERS.map((filters) => ({ filters, addTags: ['taken'], removeTags: [], expectedCount: 1 })),
  'endpoint.deliveries': () => ['sent', 'accepted', 'failed'].map((status) => ({ status })),
  'event.list': ({ account, userId, failure, eventKey: key }) => [
    ...[
      {},
      { kind: 'follow' },
      { user: userId },
      { key },
      { status: 'failed' },
      { status: 'set-aside' },
      { failure },
    ],
    ...[
      { account, user: userId },
      { account, failure },
      { account, key },
    ],
  ],
  'event.reasons': () => [{}],
  'report.show': ({ organization }) => [{ from: '2026-11-01', to: '2026-11-30', organization, by: 'source' }],
  'job.add-endpoints': ({ account }) => [
    { accounts: [account], url: 'https://taken.example/members', format: 'members' },
  ],
  'job.results': () => [{ outcome: 'changed' }],
  'activity.list': ({ operator, account }) => [{ operator }, { account }],
}

/** Filters of members, each of which has a statement of its own. */
const FILTERS = [
  { userId: 'U1' },
  { externalId: 'E1' },
  { relationship: 'following' },
  { tag: 'vip' },
  { source: 'shop' },
  { q: 'Ann' },
  { q: 'A' },
]

/** A foreign organization is a fault of the input; nobody of one organization adds another one. */
const REFUSED: Record<string, RouteAccess['foreign']> = {
  'operator.add': 400,
  'organization.add': 403,
  'account.add': 400,
  'endpoint.list': 404,
  'event.list': 404,
  'segment.list': 404,
  'report.show': 404,
  'endpoint.of-person': 404,
  'endpoint.rehearse-new': 404,
  'channel.add': 400,
  'job.verify-accounts': 400,
  'job.mute-accounts': 400,
  'job.unmute-accounts': 400,
  'job.change-endpoints': 400,
  'job.add-endpoints': 400,
}

const operationRoutes = OPERATIONS.map((operation): [string, RouteAccess] => {
  const { method, path } = routeOf(operation)
  const { name, noun, role, does, hasTarget, way } = operation
  const requestWith = (of: Objects, input: object | undefined) => {
    const target = path.replace(':id', of[noun.word as keyof Objects])
    if (method === 'POST') return { path: target, body: input }
    return { path: input ? `${target}?${new URLSearchParams(input as Record<string, string>)}` : target }
  }
  const request = (of: Objects) => requestWith(of, INPUTS[name]?.(of))
  const further = (of: Objects) => (FURTHER_INPUTS[name]?.(of) ?? []).map((input) => requestWith(of, input))
  const isFiltered = !hasTarget && (way === 'list' || way === 'read')
  const foreign = REFUSED[name] ?? (isFiltered ? 'filtered' : 404)
  return [`${method} ${path.replace(':id', ':')}`, { role, does, request, foreign, further }]
})

/** By method and path, where `:` stands for a parameter. */
export const ROUTES: Record<string, RouteAccess> = {
  ...Object.fromEntries(operationRoutes),
  'POST /fleet-file/preview': manager(
    'see what a fleet file would change',
    () => ({ path: '/fleet-file/preview', body: 'no columns' }),
    'filtered',
  ),
  'POST /fleet-file/apply': manager(
    'apply a fleet file',
    () => ({ path: '/fleet-file/apply?webhook=no', body: 'no columns' }),
    400,
  ),
  'GET /accounts/:/people/export': viewer("export a person's data", (of) => ({
    path: `/accounts/${of.account}/people/export?userId=${of.userId}`,
  })),
  'GET /accounts/:/people/export-all': viewer("export a person's data of all accounts", (of) => ({
    path: `/accounts/${of.account}/people/export-all?userId=${of.userId}`,
  })),
  'GET /accounts/:/audience/export': viewer(
    'export members that match',
    ofAccount('/audience/export?format=csv'),
    404,
    ({ account }) =>
      [{}, ...FILTERS].map((filters) => ({
        path: `/accounts/${account}/audience/export?${new URLSearchParams({ ...filters, format: 'line-ids' })}`,
      })),
  ),
  'GET /accounts/:/events/export': viewer(
    'export events of an account',
    ofAccount('/events/export?from=2026-01-01'),
  ),
  'POST /jobs/:/file': manager('upload a file', (of) => ({
    path: `/jobs/${of.job}/file?position=0`,
    body: {},
  })),
  'GET /activity/export': owner('export the activity log', () => ({ path: '/activity/export' }), 'filtered'),
  'GET /activity/of': viewer(
    'see what was done with an object',
    (of) => ({ path: `/activity/of?kind=account&id=${of.account}` }),
    'filtered',
    (of) => [{ path: `/activity/of?kind=endpoint&id=${of.endpoint}` }],
  ),
  'GET /search': viewer(
    'search everything',
    () => ({ path: '/search?q=Strangers' }),
    'filtered',
    ({ userId, requestId }) => [userId, 'E2', 'Ann', requestId].map((q) => ({ path: `/search?q=${q}` })),
  ),
}

/** The routes below /api that Fastify has, except GET /api/session, which is public. */
export const routesOf = (app: FastifyInstance): string[] =>
  printedRoutes(app)
    .filter((route) => / \/api\/.*[^*]$/.test(route) && !route.endsWith(' /api/session'))
    .map((route) => route.replace('/api', ''))
