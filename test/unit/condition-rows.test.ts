/** The rows of the condition editor, and the kinds of events as check boxes. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ConditionSchema, checkCondition } from '../../src/audience/condition.ts'
import { EVENT_TYPES } from '../../src/endpoints/event-types.ts'
import { FIRST, jsonOfRows, KINDS, rowsOfJson } from '../../web/parts/condition-rows.ts'
import { english } from '../../web/texts/languages.ts'
import { describeCondition } from '../../web/texts/service.ts'

const word = fc.stringMatching(/^[a-z]{1,8}$/)
const words = fc.array(word, { minLength: 1, maxLength: 3 })
const condition = fc.record(
  {
    ...{ tagsAll: words, tagsAny: words, tagsNone: words, sourceAny: words, campaignAny: words },
    relationship: fc.constantFrom('following', 'blocked', 'unknown'),
    ...{ language: word, conversationStatus: word, hasExternalId: fc.boolean() },
    ...{ followedAfter: fc.constant('30d'), lastSeenBefore: fc.constant('2026-11-21T09:00:00Z') },
    ...{
      eventCountMin: fc.nat(),
      attributes: fc.dictionary(word, fc.oneof(word, fc.integer(), fc.boolean()), { minKeys: 1 }),
    },
  },
  { requiredKeys: [] },
)

it('rows show every condition of words, and give the same condition back (property)', () => {
  fc.assert(
    fc.property(condition, (given) => {
      const json = JSON.stringify(given)
      expect(JSON.parse(jsonOfRows(rowsOfJson(json) ?? []) || '{}')).toEqual(JSON.parse(json))
    }),
  )
})

it.each([
  '{"tagsAny":["a, b"]}',
  '{"attributes":{"tier":"1"}}',
  '{"unknown":1}',
  '{',
  '[]',
  'null',
  '{"constructor":1}',
])('what rows would change is edited as JSON: %s', (json) => expect(rowsOfJson(json)).toBeNull())

it('the editor has each field of a condition with words, and begins each with a value that the service takes or asks for', () => {
  const fields = Object.keys(ConditionSchema.properties).toSorted()
  expect(Object.keys(KINDS).toSorted()).toEqual(fields)
  expect(Object.keys(english.condition.fields).toSorted()).toEqual(fields)
  for (const field of Object.keys(KINDS) as Array<keyof typeof KINDS>) {
    const text = FIRST[KINDS[field]]
    if (text !== '') expect(() => checkCondition(JSON.parse(jsonOfRows([{ field, text }])))).not.toThrow()
  }
})

it('each kind of events has a check box', () => {
  for (const format of ['line', 'members'] as const)
    expect(Object.keys(english.eventKinds[format])).toEqual(EVENT_TYPES[format])
})

it('a condition is described by one text for each row, or by its JSON if rows cannot show it', () => {
  const condition = {
    ...{ tagsAny: ['vip', 'new'], relationship: 'blocked', hasExternalId: false },
    ...{ lastSeenAfter: '12h', followedBefore: '2026-11-21T09:00:00Z', attributes: { tier: 'gold' } },
  } as const
  expect(describeCondition(english, JSON.stringify(condition))).toEqual([
    'has one of the tags: vip, new',
    'relationship is: blocked',
    'has an external id: no',
    'was seen in the last 12 hours',
    'followed more than … ago: 2026-11-21T09:00:00Z',
    'has the attributes: tier=gold',
  ])
  expect(describeCondition(english, '{"tagsAny":["a,b"]}')).toEqual(['{"tagsAny":["a,b"]}'])
})
