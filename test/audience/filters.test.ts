/** GET /api/audience: its filters, alone and together, and the cursors of its walks. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { runs } from '../support/runs.ts'
import { setUpService } from '../support/service.ts'
import { type Listed, listPage, pagesOf, walk } from '../support/walk.ts'

const { database, service, tenant: emptyTenant } = await setUpService()

interface Person {
  userId: string
  displayName: string | null
  externalId: string | null
  relationship: string
  tags: string[]
}

const NAMES = ['Ann', 'ANNA', 'สมชาย ใจดี', '山田太郎', '100%', '10_0', 'a\\b', "O'Neil", 'Zoë', null, '😀x']
const NAME_PARTS = "ann n ชาย 山田 太 % _ 0% \\ ' ë Ë 😀 zz ใจ 田太郎 nn".split(' ')

const person = (i: number): Person => ({
  userId: `U${i}`,
  displayName: NAMES[i % NAMES.length] ?? null,
  externalId: i % 3 === 0 ? `c-${i}` : null,
  relationship: ['following', 'blocked', 'unknown'][i % 5] ?? 'following',
  tags: ['vip', 'new', 'กลุ่ม'].filter((_, bit) => (i >> bit) & 1),
})

async function tenantWithPeople(people: Person[]): Promise<Tenant> {
  const tenant = await addTenant(database)
  await load(
    database,
    `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, external_id, relationship, tags)
     select $1, $2, p->>'userId', p->>'displayName', p->>'externalId', p->>'relationship',
            array(select jsonb_array_elements_text(p->'tags'))
       from jsonb_array_elements($3::jsonb) with ordinality as list (p, no) order by no`,
    [tenant.accountId, tenant.organizationId, JSON.stringify(people)],
  )
  return tenant
}

const userIdsOf = (members: Listed[]) => members.map(({ userId }) => userId)

const filters = fc.record(
  {
    userId: fc.constantFrom('U1', 'U12', 'U999'),
    externalId: fc.constantFrom('c-3', 'c-12', 'c-999'),
    relationship: fc.constantFrom('following', 'blocked', 'unknown'),
    tag: fc.uniqueArray(fc.constantFrom('vip', 'new', 'กลุ่ม', 'absent'), { minLength: 1, maxLength: 3 }),
    q: fc.constantFrom(...NAME_PARTS),
  },
  { requiredKeys: [] },
)
type ChosenFilters = typeof filters extends fc.Arbitrary<infer T> ? T : never

const matches = (chosen: ChosenFilters, { userId, externalId, relationship, tags, displayName }: Person) =>
  (chosen.userId ?? userId) === userId &&
  (chosen.externalId ?? externalId) === externalId &&
  (chosen.relationship ?? relationship) === relationship &&
  (chosen.tag ?? []).every((tag) => tags.includes(tag)) &&
  (chosen.q === undefined || displayName?.toLowerCase().includes(chosen.q.toLowerCase()) === true)

it('the filters of GET /api/audience return exactly the members that match all of them, over pages of any size (property)', async () => {
  const people = Array.from({ length: 40 }, (_, i) => person(i))
  const tenant = await tenantWithPeople(people)
  await tenantWithPeople(people)
  await fc.assert(
    fc.asyncProperty(filters, fc.integer({ min: 1, max: 20 }), async (chosen, limit) => {
      const query = new URLSearchParams()
      for (const [name, value] of Object.entries(chosen)) {
        for (const each of [value].flat()) query.append(name, each)
      }
      const expected = people.filter((each) => matches(chosen, each)).map(({ userId }) => userId)
      expect(userIdsOf(await walk(service, tenant, String(query), limit))).toEqual(expected)
    }),
    { numRuns: runs(100) },
  )
})

it('the filters of GET /api/audience follow changes of tags by clients and by other programs', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const { id = '' } = (await service.member(tenant, 'U1')) ?? {}
  const tagged = async (...tags: string[]) =>
    Promise.all(tags.map(async (tag) => (await walk(service, tenant, `tag=${tag}`)).length))
  await service.put(tenant, id, { tags: ['vip', 'gold'] })
  expect(await tagged('vip', 'gold')).toEqual([1, 1])
  await service.put(tenant, id, { tags: ['gold'] })
  expect(await tagged('vip', 'gold')).toEqual([0, 1])
  await load(database, `update audience_member set tags = '{late,late}' where id = $1`, [id])
  expect(await tagged('late', 'gold')).toEqual([1, 0])
  await service.erase(tenant, id)
  expect(await tagged('late')).toEqual([0])
  const rows = await load(database, 'select from audience_tag where channel_oa_id = $1', [tenant.accountId])
  expect(rows).toEqual([])
})

it.each([
  ['limit=0', 'limit'],
  ['limit=1&limit=2', 'limit'],
  ['__proto__=1', '__proto__'],
  [`cursor=${'A'.repeat(23)}`, 'cursor'],
  [Array.from({ length: 11 }, (_, i) => `tag=${i}`).join('&'), 'tag'],
  ['userId=a&userId=b', 'userId'],
  ['updatedSince=2026-04-31T00:00:00%2B07:00', 'updatedSince'],
])('the filters of GET /api/audience are rejected with 400 when the query is %s', async (query, name) => {
  const { status, json } = await listPage(service, emptyTenant, query)
  expect(status).toBe(400)
  expect(json.details[0].path.split('/')[0]).toBe(name)
})

it('a cursor is rejected with 400 for another tenant, other filters and another kind of walk', async () => {
  const [one, two] = [await tenantWithMembers(database, 5), await tenantWithMembers(database, 5)]
  const cursorOf = async (query: string) =>
    (await listPage(service, one, `limit=1&${query}`)).json.nextCursor as string
  const plain = await cursorOf('')
  const delta = await cursorOf('updatedSince=2020-01-01T00:00:00Z')
  expect((await listPage(service, one, `cursor=${plain}`)).status).toBe(200)
  for (const [tenant, query] of [
    [two, `cursor=${plain}`],
    [one, `cursor=${plain}&relationship=following`],
    [one, `cursor=${delta}`],
    [one, `cursor=${plain}&updatedSince=2020-01-01T00:00:00Z`],
    [one, `cursor=${delta}&updatedSince=2020-01-01T00:00:01Z`],
    [one, `cursor=${plain}x`],
  ] as const) {
    expect((await listPage(service, tenant, query)).status, query).toBe(400)
  }
})

it('a cursor is valid for the same tags in another order', async () => {
  const tenant = await tenantWithMembers(database, 2, { tags: `'{a,b}'::text[]` })
  const { nextCursor } = (await listPage(service, tenant, 'tag=b&tag=a&limit=1')).json
  const next = await listPage(service, tenant, `tag=a&tag=b&cursor=${nextCursor}`)
  expect(next.json.data).toHaveLength(1)
})

const change = fc.record({
  kind: fc.constantFrom('add', 'change', 'erase', 'event'),
  no: fc.integer({ min: 1, max: 20 }),
})
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never

async function makeChange(tenant: Tenant, { kind, no }: Change, id: string): Promise<void> {
  if (kind === 'add') await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  if (kind === 'event') await service.deliver(tenant, [textMessage(`U${no}`, 'hello')])
  if (kind === 'change') await service.put(tenant, id, { tags: [`t${no}`] })
  if (kind === 'erase') await service.erase(tenant, id)
}

it('a walk over all pages returns every member that exists throughout exactly once, for any changes meanwhile (property)', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { maxLength: 10 }),
      fc.integer({ min: 2, max: 9 }),
      async (changes, limit) => {
        const tenant = await tenantWithMembers(database, 20)
        const ids = (await service.members(tenant)).map(({ id }) => id)
        const erased = new Set<string>()
        const pending = changes.values()
        const seen: string[] = []
        for await (const page of pagesOf(service, tenant, '', limit)) {
          seen.push(...page.map(({ id }) => id))
          const { value } = pending.next()
          if (value === undefined) continue
          const id = ids[value.no - 1] as string
          if (value.kind === 'erase') erased.add(id)
          await makeChange(tenant, value, id)
        }
        expect(new Set(seen).size).toBe(seen.length)
        for (const id of ids) if (!erased.has(id)) expect(seen).toContain(id)
      },
    ),
    { numRuns: runs(15) },
  )
})
