/** Conditions: the SQL function compared with an oracle, its inlining, and what is refused. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type Condition, checkCondition, holdsFor } from '../../src/audience/condition.ts'
import type { AppError } from '../../src/errors.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { runs } from '../support/runs.ts'

const { database } = await createTestDatabase()
const { accountId, organizationId } = await addTenant(database)

const NOW = Date.now()
const HOUR = 3_600_000
const UNITS: Record<string, number> = { m: 60_000, h: HOUR, d: 24 * HOUR, w: 7 * 24 * HOUR }
const iso = (ms: number) => new Date(ms).toISOString()

/** Half an hour away from every bound, so that the seconds of the test do not matter. */
const memberTime = fc.option(fc.integer({ min: 0, max: 100 }).map((hours) => NOW - (hours + 0.5) * HOUR))
const bound = fc.oneof(
  fc.integer({ min: 0, max: 100 }).map((hours) => iso(NOW - hours * HOUR)),
  fc.integer({ min: 0, max: 100 }).map((hours) => `${hours}h`),
  fc.constantFrom('120m', '1d', '3d', '1w'),
)
const tag: fc.Arbitrary<string> = fc.constantFrom('vip', 'staff', 'new', 'กลุ่ม', '"\\', "o'clock")
const tags = fc.uniqueArray(tag, { minLength: 1, maxLength: 3 })
const attribute = fc.constantFrom('Tokyo', '', 7, 7.5, true, false, null)
const attributes = fc.dictionary(fc.constantFrom('city', 'points', 'a"b'), attribute, { maxKeys: 2 })
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { freq: 2 })

const members = fc.record({
  tags: fc.array(fc.option(tag), { maxLength: 4 }),
  isSquare: fc.boolean(),
  relationship: fc.constantFrom('following', 'blocked', 'unknown'),
  language: optional(fc.constantFrom('th', 'ja')),
  attributes: fc.oneof(attributes, fc.constant<string[]>(['Tokyo'])),
  externalId: optional(fc.constant('c-1')),
  conversationId: optional(fc.constant('7')),
  conversationStatus: optional(fc.constantFrom('open', 'resolved')),
  followedAt: memberTime,
  lastSeenAt: memberTime,
  eventCount: fc.integer({ min: 0, max: 5 }),
  tracked: optional(
    fc.record({
      lastSeenAt: memberTime.map((at) => at ?? NOW - HOUR / 2),
      eventCount: fc.integer({ min: 1, max: 5 }),
    }),
  ),
})
type Person = typeof members extends fc.Arbitrary<infer T> ? T : never

const conditions = fc.record(
  {
    tagsAll: tags,
    tagsAny: tags,
    tagsNone: tags,
    relationship: fc.constantFrom('following', 'blocked', 'unknown'),
    language: fc.constantFrom('th', 'ja'),
    attributes: attributes.filter((given) => Object.keys(given).length > 0),
    hasExternalId: fc.boolean(),
    conversationStatus: fc.constantFrom('open', 'resolved'),
    followedAfter: bound,
    followedBefore: bound,
    lastSeenAfter: bound,
    lastSeenBefore: bound,
    eventCountMin: fc.integer({ min: 0, max: 8 }),
    eventCountMax: fc.integer({ min: 0, max: 8 }),
  },
  { requiredKeys: [] },
)
/** Conditions with few fields, because members seldom match all of many. */
const fewFields = conditions.chain((all) =>
  fc
    .subarray(Object.keys(all) as Array<keyof typeof all>, { maxLength: 3 })
    .map((names) => Object.fromEntries(names.map((name) => [name, all[name]])) as Condition),
)

function timeOf(text: string): number {
  const [, count, unit = ''] = /^(\d+)([mhdw])$/.exec(text) ?? []
  return count === undefined ? Date.parse(text) : NOW - Number(count) * (UNITS[unit] ?? Number.NaN)
}

/** A two-dimensional array has no ragged rows. */
const storedTags = ({ tags: given, isSquare }: Person) => (isSquare && given.length > 0 ? [given] : given)

const isWithin = (at: number | null, after?: string, before?: string) =>
  (after === undefined || (at !== null && at > timeOf(after))) &&
  (before === undefined || (at !== null && at < timeOf(before)))

/** What the fields of a condition mean, by the member that GET /api/audience shows. */
function holds(condition: Condition, person: Person): boolean {
  const { tagsAll = [], tagsAny, tagsNone = [], attributes: wanted = {} } = condition
  const shown = person.tags.filter((each) => each !== null)
  const seen = [person.lastSeenAt, person.tracked?.lastSeenAt ?? null].filter((at) => at !== null)
  const count = person.eventCount + (person.tracked?.eventCount ?? 0)
  const given: Record<string, unknown> = Array.isArray(person.attributes) ? {} : person.attributes
  const status = person.conversationId === null ? null : person.conversationStatus
  return (
    tagsAll.every((each) => shown.includes(each)) &&
    (tagsAny?.some((each) => shown.includes(each)) ?? true) &&
    !tagsNone.some((each) => shown.includes(each)) &&
    (condition.relationship ?? person.relationship) === person.relationship &&
    (condition.language === undefined || condition.language === person.language) &&
    Object.entries(wanted).every(([name, value]) => Object.hasOwn(given, name) && given[name] === value) &&
    (condition.hasExternalId ?? person.externalId !== null) === (person.externalId !== null) &&
    (condition.conversationStatus === undefined || condition.conversationStatus === status) &&
    isWithin(person.followedAt, condition.followedAfter, condition.followedBefore) &&
    isWithin(
      seen.length === 0 ? null : Math.max(...seen),
      condition.lastSeenAfter,
      condition.lastSeenBefore,
    ) &&
    count >= (condition.eventCountMin ?? 0) &&
    count <= (condition.eventCountMax ?? count)
  )
}

async function store(people: Person[]): Promise<void> {
  for (const table of ['tracked_activity', 'audience_member'])
    await load(database, `delete from ${table} where channel_oa_id = $1`, [accountId])
  for (const [index, person] of people.entries()) {
    const time = (ms: number | null) => ms && iso(ms)
    await load(
      database,
      `insert into audience_member (channel_oa_id, organization_id, user_id, tags, relationship, language, attributes, external_id,
                                    conversation_id, conversation_status, followed_at, last_seen_at, event_count)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
      [
        ...[accountId, organizationId, `U${index}`, storedTags(person), person.relationship, person.language],
        ...[JSON.stringify(person.attributes), person.externalId && `c-${index}`, person.conversationId],
        ...[person.conversationStatus, time(person.followedAt), time(person.lastSeenAt), person.eventCount],
      ],
    )
    if (person.tracked === null) continue
    const at = iso(person.tracked.lastSeenAt)
    await load(
      database,
      `insert into tracked_activity (channel_oa_id, user_id, event_count, first_seen_at, last_seen_at) values ($1, $2, $3, $4, $4)`,
      [accountId, `U${index}`, person.tracked.eventCount, at],
    )
  }
}

const MATCHING = `select m.user_id from audience_member m where m.channel_oa_id = $1 and ${holdsFor('$2::jsonb')} order by m.id`

it('a condition holds in SQL for exactly the members for whom it holds by the documented meaning (property)', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(members, { minLength: 5, maxLength: 12 }),
      fc.array(fewFields, { minLength: 20, maxLength: 20 }),
      async (people, asked) => {
        await store(people)
        for (const condition of asked) {
          const values = [accountId, JSON.stringify(checkCondition(condition))]
          const found = await load<{ user_id: string }>(database, MATCHING, values)
          const expected = people.flatMap((person, index) => (holds(condition, person) ? [`U${index}`] : []))
          expect([condition, found.map(({ user_id }) => user_id)]).toEqual([condition, expected])
        }
      },
    ),
    { numRuns: runs(40) },
  )
})

it.each<[keyof Condition, 'excludes' | 'includes', string[]]>([
  ['followedAfter', 'excludes', ['U2']],
  ['followedBefore', 'excludes', ['U0']],
  ['lastSeenAfter', 'excludes', ['U2']],
  ['lastSeenBefore', 'excludes', ['U0']],
  ['eventCountMin', 'includes', ['U1', 'U2']],
  ['eventCountMax', 'includes', ['U0', 'U1']],
])('a condition %s %s its bound', async (field, _, expected) => {
  await store(
    [-1, 0, 1].map((difference) => ({
      ...{ tags: [], isSquare: false, relationship: 'following', language: null, attributes: {} },
      ...{ externalId: null, conversationId: null, conversationStatus: null, tracked: null },
      ...{ followedAt: NOW - HOUR + difference, lastSeenAt: NOW - HOUR + difference },
      eventCount: 5 + difference,
    })),
  )
  const condition = { [field]: field.startsWith('event') ? 5 : iso(NOW - HOUR) }
  const found = await load<{ user_id: string }>(database, MATCHING, [accountId, JSON.stringify(condition)])
  expect(found.map(({ user_id }) => user_id)).toEqual(expected)
})

it('a condition costs no call of a function per member, and reads tracked activity only if it depends on it', async () => {
  const plan = await database.session(async (session) => {
    await session.query('set plan_cache_mode = force_generic_plan')
    await session.query(`prepare matching (bigint, jsonb) as ${MATCHING}`)
    return session.query<{ 'QUERY PLAN': string }>(`explain (verbose) execute matching (1, '{}')`)
  })
  const text = plan.map((row) => row['QUERY PLAN']).join('\n')
  expect(text).not.toMatch(/matches_condition|condition_time|needs_activity|flat_tags/)
  expect(text).toMatch(/One-Time Filter: .*lastSeenAfter/)
  expect(text).toMatch(/Index Scan using tracked_activity_pkey/)
})

it('a condition writes its times in UTC', () => {
  expect(checkCondition({ followedAfter: '2026-11-21T09:00:00+09:00', lastSeenBefore: '30d' })).toEqual({
    followedAfter: '2026-11-21T00:00:00.000Z',
    lastSeenBefore: '30d',
  })
})

it.each<[string, unknown, string]>([
  ['an unknown field', { tags: ['vip'] }, 'condition/tags'],
  ['51 tags', { tagsNone: Array.from({ length: 51 }, (_, i) => `t${i}`) }, 'condition/tagsNone'],
  ['a name of an attribute with U+0000', { attributes: { '\0': 1 } }, 'condition/attributes'],
  ['a day that does not exist', { lastSeenBefore: '2026-02-30T00:00:00Z' }, 'condition/lastSeenBefore'],
  ['a negative count', { eventCountMin: -1 }, 'condition/eventCountMin'],
])('a condition with %s is refused, and the message names the field', (_, condition, path) => {
  const refusal = (() => {
    try {
      checkCondition(condition)
    } catch (error) {
      return error as AppError
    }
  })()
  expect(refusal?.details?.map((detail) => detail.path)).toContain(path)
})

it.each(['99999w', '0m', '0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z'])(
  'a condition with the bound %s is evaluated without an error',
  async (text) => {
    const condition = checkCondition({ followedAfter: text, lastSeenBefore: text })
    await load(database, MATCHING, [accountId, JSON.stringify(condition)])
  },
)
