/** GET /api/audience with filters that few of many members match. */
import fc from 'fast-check'
import { afterAll, expect, it } from 'vitest'
import { toFilters } from '../../src/audience/filters.ts'
import { type Beginning, beginningOf, type Page, readPage } from '../../src/audience/list-pages.ts'
import { SCAN_MAX } from '../../src/audience/list-statements.ts'
import type { Row, Statement } from '../../src/postgres/statement.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { openPlanner, type Step } from '../support/plans.ts'
import { runs } from '../support/runs.ts'
import { startApp } from '../support/service.ts'
import { listPage, pagesOf } from '../support/walk.ts'

const { database, connection } = await createTestDatabase()
const service = await startApp(database)
const planner = await openPlanner(connection)
afterAll(() => planner.end())

/** More than four statements examine. */
const MEMBERS = 9_000
const LIMIT = 100

/** Every 1,000th member is rare. The second half have names of their own. All are tagged. */
const tenantWithRareMembers = async (): Promise<Tenant> => {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, MEMBERS, {
    display_name: `case when i % 1000 = 7 then 'สมหญิง' when i > ${MEMBERS / 2} then 'Zoe' else 'Ann' end`,
    tags: `case when i % 1000 = 7 then '{common,rare}'::text[] else '{common}' end`,
    relationship: `case when i % 1000 = 7 then 'blocked' else 'following' end`,
  })
  return tenant
}
const large = await tenantWithRareMembers()

const RARE = Array.from({ length: 9 }, (_, i) => `U${i * 1000 + 7}`)
const HALF = Array.from({ length: MEMBERS / 2 }, (_, i) => `U${MEMBERS / 2 + i + 1}`)

const cases: Array<{ query: string; matches: string[] }> = [
  { query: 'tag=common&tag=rare', matches: RARE },
  { query: 'relationship=following&tag=rare', matches: [] },
  { query: 'relationship=blocked&q=ห', matches: RARE },
  { query: 'q=zo', matches: HALF.filter((userId) => !RARE.includes(userId)) },
  { query: 'q=%E0%B8%AB%E0%B8%8D%E0%B8%B4%E0%B8%87', matches: RARE },
  { query: 'q=nobody', matches: [] },
]

const scope = { keyId: null, accountId: large.accountId, organizationId: large.organizationId }

/** Runs the statements of lists, and collects the steps of their plans. */
function planned() {
  const steps: Step[] = []
  const query = async <R extends Row>(statement: Statement, values: unknown[] = []) => {
    steps.push(...(await planner.stepsOf({ statement, values })))
    return database.query<R>(statement, values)
  }
  return { steps, query, secretKeys: database.secretKeys }
}

/** Every page of a walk in one form, with the steps of its statement. */
async function* plannedPages(query: string, form: 'page' | 'csv', limit: number) {
  const { tag, ...parameters } = Object.fromEntries(new URLSearchParams(query))
  const filters = toFilters({
    ...parameters,
    ...(tag ? { tag: new URLSearchParams(query).getAll('tag') } : {}),
  })
  for (let position: Beginning | null = beginningOf(filters); position !== null; ) {
    const database = planned()
    const page: Page = await readPage(database, scope, filters, position, limit, form)
    yield { page, steps: database.steps }
    position = page.next
  }
}

it.each(cases)(
  'a filter that few of many members match $query examines a bounded number of rows for each page',
  async ({ query, matches }) => {
    for (const [form, limit] of [
      ['page', LIMIT],
      ['csv', 1_000],
    ] as const) {
      let members = 0
      for await (const { page, steps } of plannedPages(query, form, limit)) {
        members += page.members
        // Bitmap index scans belong to no table: they read entries of the index alone.
        for (const step of steps.filter(({ relation }) => relation !== null)) {
          expect(step.rows, JSON.stringify(step)).toBeLessThanOrEqual(SCAN_MAX + 1)
        }
      }
      expect(members).toBe(matches.length)
    }
  },
)

it.each(cases)(
  'a filter that few of many members match $query returns every match once, in the order of ids',
  async ({ query, matches }) => {
    const seen: string[] = []
    let pages = 0
    for await (const page of pagesOf(service, large, query, LIMIT)) {
      seen.push(...page.map(({ userId }) => userId))
      pages += 1
    }
    expect(seen).toEqual(matches)
    expect(pages).toBeLessThanOrEqual(MEMBERS / SCAN_MAX + matches.length / LIMIT + 2)
  },
)

it.each(['tag=common', 'q=ann', 'q=n', 'relationship=following', 'tag=common&q=ann'])(
  'a filter that few of many members match does not concern %s: pages are full where matches are dense',
  async (query) => {
    const { json } = await listPage(service, large, `${query}&limit=200`)
    expect(json.data).toHaveLength(200)
  },
)

it('a filter that few of many members match reads no member for a key whose organization is not the account’s', async () => {
  const foreign = { ...scope, organizationId: scope.organizationId + 1n }
  const database = planned()
  const relationship = 'following'
  for (const filters of [{}, { q: 'z' }, { q: 'zoe' }, { tag: ['common'] }, { relationship } as const]) {
    const page = await readPage(database, foreign, filters, beginningOf(filters), LIMIT, 'page')
    expect(page).toEqual({ lines: '', members: 0, next: null })
  }
  const members = database.steps.filter(({ relation }) => relation?.startsWith('audience_'))
  for (const step of members) expect(step.rows, JSON.stringify(step)).toBe(0)
})

it('a filter that few of many members match returns each match that exists throughout once, whatever changes meanwhile (property)', async () => {
  const tenant = await tenantWithRareMembers()
  const idOf = new Map((await service.members(tenant)).map(({ id, userId }) => [userId, id]))
  const pool = [...RARE.slice(0, 4), 'U1', 'U2500', 'U5000', 'U8999']
  const change = fc.record({
    kind: fc.constantFrom('add', 'tag', 'event'),
    userId: fc.constantFrom(...pool),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.nat(cases.length - 1),
      fc.array(change, { maxLength: 6 }),
      fc.integer({ min: 1, max: 60 }),
      async (no, changes, limit) => {
        const { query, matches } = cases[no] as (typeof cases)[number]
        const pending = changes.values()
        const seen: string[] = []
        for await (const page of pagesOf(service, tenant, query, matches.length > 100 ? 200 : limit)) {
          seen.push(...page.map(({ userId }) => userId))
          const { value } = pending.next()
          if (value?.kind === 'add') await service.deliver(tenant, [lineEvent('follow', randomUserId())])
          if (value?.kind === 'event') await service.deliver(tenant, [lineEvent('message', value.userId)])
          if (value?.kind === 'tag')
            await load(
              database,
              `update audience_member set tags = tags || '{more}' where channel_oa_id = $1 and id = $2`,
              [tenant.accountId, idOf.get(value.userId)],
            )
        }
        expect(new Set(seen).size).toBe(seen.length)
        for (const userId of matches) expect(seen).toContain(userId)
      },
    ),
    { numRuns: runs(20) },
  )
})
