/** What a delivery brings does not depend on how its JSON is written. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type LineDelivery, parseLineDelivery } from '../../src/intake/line/payload.ts'

const parse = (text: string) => parseLineDelivery(Buffer.from(text), 1_700_000_000_000)

/** The payloads are the events' own texts where there is one event, else written anew: their meaning counts. */
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

it('is read alike as LINE writes it and with blanks or another order of fields (property)', () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.constant('U1'), arbitraryText),
      fc.array(arbitraryEvent, { maxLength: 3 }),
      (destination, events) => {
        const asLineDoes = meaning(parse(JSON.stringify({ destination, events })))
        expect(meaning(parse(JSON.stringify({ destination, events }, null, 1)))).toEqual(asLineDoes)
        expect(meaning(parse(JSON.stringify({ events, destination })))).toEqual(asLineDoes)
      },
    ),
    { numRuns: 1_000 },
  )
})

it.each([
  ['{"destination":"U1","events":[{"a":1}],"more":[{"b":2}]}', [{ a: 1 }]],
  ['{"destination":"U1","events":[{"a":1}],"events":[{"b":2}]}', [{ b: 2 }]],
  ['{"destination":"U1","events":[{"a":"]}"},{"b":"},{"}]}', [{ a: ']}' }, { b: '},{' }]],
  ['{"destination":"U1","events":[{"a":1} , {"b":2}]}', [{ a: 1 }, { b: 2 }]],
  ['{"destination":"U1","events":[{"a":[{"b":2}]}]}', [{ a: [{ b: 2 }] }]],
  ['{"destination":"U1","events":[]}', []],
])('%s brings its events', (text, events) => {
  expect(parse(text).events.map(({ payload }) => JSON.parse(payload as string))).toEqual(events)
})

it.each([
  '{"destination":"U1","events":[{"a":1}}]}',
  '{"destination":"U1","events":[{"a":1}]]}',
  '{"destination":"U1","events":[{"a":1}]}]}',
  '{"destination":"U1","events":[{]}',
])('%s is no JSON', (text) => {
  expect(() => parse(text)).toThrow('not valid JSON')
})

it('keeps the text of a lone event as it came, unless it takes more room than it must', () => {
  const kept = (event: string) => parse(`{"destination":"U1","events":[${event}]}`).events[0]?.payload
  expect(kept('{"n":12345678901234567890}')).toBe('{"n":12345678901234567890}')
  expect(kept(String.raw`{"text":"\u0e01"}`)).toBe('{"text":"ก"}')
  expect(kept(String.raw`{"text":"\u0000\ud800"}`)).toBe(String.raw`{"text":"\u0000\ud800"}`)
})
