/** The events of a delivery do not depend on how its JSON is written. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type LineDelivery, parseLineDelivery } from '../../src/intake/line/line-payload.ts'
import { runs } from '../support/runs.ts'

const parse = (text: string) => parseLineDelivery(Buffer.from(text), 1_700_000_000_000)

/** The payload of a single event keeps LINE's text. Several are serialized again, so only their values are compared. */
const meaning = ({ destination, events }: LineDelivery) => ({
  destination,
  events: events.map((event) => ({ ...event, payload: JSON.parse(event.payload as string) })),
})

const arbitraryText = fc.string({
  unit: fc.constantFrom('a', '{', '}', '[', ']', ',', ':', '"', '\\', '\u0000', 'ก', '\ud800'),
})
const arbitraryEvent = fc.oneof(
  fc.jsonValue(),
  fc.record(
    {
      type: fc.constantFrom('message', 'follow', 'memberJoined', 'unheard-of'),
      webhookEventId: fc.oneof(arbitraryText, fc.constant('01FZ74A0TDDPYRVKNK77XKC3ZR')),
      timestamp: fc.oneof(fc.nat(), fc.double(), fc.constant(1_700_000_000_123)),
      source: fc.record({ type: fc.constant('user'), userId: arbitraryText }),
      message: fc.record({ id: arbitraryText, text: arbitraryText }),
      joined: fc.record({ members: fc.array(fc.record({ userId: arbitraryText }), { maxLength: 3 }) }),
      deliveryContext: fc.record({ isRedelivery: fc.boolean() }),
    },
    { requiredKeys: ['type'] },
  ),
)

it('parseLineDelivery reads the same events with and without blanks, and in any order of fields (property)', () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.constant('U1'), arbitraryText),
      fc.array(arbitraryEvent, { maxLength: 3 }),
      (destination, events) => {
        const asLineWrites = meaning(parse(JSON.stringify({ destination, events })))
        expect(meaning(parse(JSON.stringify({ destination, events }, null, 1)))).toEqual(asLineWrites)
        expect(meaning(parse(JSON.stringify({ events, destination })))).toEqual(asLineWrites)
      },
    ),
    { numRuns: runs(1_000) },
  )
})

it.each([
  ['{"destination":"U1","events":[{"a":1}],"more":[{"b":2}]}', [{ a: 1 }]],
  ['{"destination":"U1","events":[{"a":1}],"events":[{"b":2}]}', [{ b: 2 }]],
  ['{"destination":"U1","events":[{"a":"]}"},{"b":"},{"}]}', [{ a: ']}' }, { b: '},{' }]],
  ['{"destination":"U1","events":[{"a":1} , {"b":2}]}', [{ a: 1 }, { b: 2 }]],
  ['{"destination":"U1","events":[{"a":[{"b":2}]}]}', [{ a: [{ b: 2 }] }]],
  ['{"destination":"U1","events":[]}', []],
])('parseLineDelivery reads all events of %s', (text, events) => {
  expect(parse(text).events.map(({ payload }) => JSON.parse(payload as string))).toEqual(events)
})

it.each([
  '{"destination":"U1","events":[{"a":1}}]}',
  '{"destination":"U1","events":[{"a":1}]]}',
  '{"destination":"U1","events":[{"a":1}]}]}',
  '{"destination":"U1","events":[{]}',
])('parseLineDelivery rejects %s, which is not valid JSON', (text) => {
  expect(() => parse(text)).toThrow('not valid JSON')
})

it('parseLineDelivery keeps the text of a single event, except for escapes that only take more room', () => {
  const kept = (event: string) => parse(`{"destination":"U1","events":[${event}]}`).events[0]?.payload
  expect(kept('{"n":12345678901234567890}')).toBe('{"n":12345678901234567890}')
  expect(kept(String.raw`{"text":"\u0e01"}`)).toBe('{"text":"ก"}')
  expect(kept(String.raw`{"text":"\u0000\ud800"}`)).toBe(String.raw`{"text":"\u0000\ud800"}`)
})
