/** A key is the same whenever the same event is delivered, whatever a retry changes. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseChatCallback } from '../../src/intake/mbox/mbox-payload.ts'
import { parseTrackingRequest, readTrackingEvents } from '../../src/intake/tracking/tracking-payload.ts'

const YEAR_9999_MS = 253_402_300_799_999
const time = fc.integer({ min: 0, max: YEAR_9999_MS })
const hex = (key: Buffer | undefined) => key?.toString('hex')
const timeOfKey = (key: Buffer | undefined) => key?.readUIntBE(0, 6)

describe('the key of a webhook of the support chat', () => {
  const keyOf = (body: string, receivedAtMs: number, id: string | undefined, isSigned: boolean) =>
    parseChatCallback(Buffer.from(body), { id, isSigned }, receivedAtMs)[0]?.key
  const webhook = fc.record({
    event: fc.constantFrom('message_created', 'message_updated', 'conversation_updated', 'contact_updated'),
    id: fc.option(fc.nat(), { nil: undefined }),
    created_at: fc.oneof(time, fc.string(), fc.constant(undefined)),
    updated_at: fc.oneof(
      time.map((ms) => new Date(ms).toISOString()),
      fc.string(),
      fc.double(),
      fc.constant(undefined),
    ),
  })

  it('is the same for the same body, whenever and under whatever id it arrives (property)', () => {
    fc.assert(
      fc.property(webhook, time, time, fc.string(), (fields, first, second, id) => {
        const body = JSON.stringify(fields)
        expect(hex(keyOf(body, first, id, true))).toBe(hex(keyOf(body, second, undefined, true)))
        expect(hex(keyOf(body, first, undefined, false))).toBe(hex(keyOf(body, second, undefined, false)))
      }),
    )
  })

  it('is the same for the same delivery id, whatever the body says (property)', () => {
    fc.assert(
      fc.property(webhook, webhook, time, (fields, others, at) => {
        const [key, again] = [fields, others].map((each) => keyOf(JSON.stringify(each), at, 'd-1', false))
        expect(hex(again)).toBe(hex(key))
      }),
    )
  })

  it('begins with the time that the webhook states', () => {
    const at = Date.parse('2026-03-01T10:00:00Z')
    const update = JSON.stringify({
      event: 'conversation_updated',
      id: 7,
      updated_at: '2026-03-01T10:00:00Z',
    })
    const message = JSON.stringify({ event: 'message_created', id: 7, created_at: at / 1000 })
    const keys = [keyOf(update, 0, 'd-1', true), keyOf(update, 0, undefined, false)]
    for (const key of [...keys, keyOf(message, 0, undefined, false)]) expect(timeOfKey(key)).toBe(at)
  })
})

describe('the key of a tracking event', () => {
  it('is the same for the same messageId, whatever times a retry states (property)', async () => {
    const anyTime = fc.oneof(time, fc.string(), fc.constant(undefined))
    await fc.assert(
      fc.asyncProperty(
        anyTime,
        anyTime,
        anyTime,
        time,
        time,
        async (timestamp, again, sentAt, first, second) => {
          const keyOf = async (at: unknown, receivedAtMs: number) => {
            const batch = [{ type: 'page', userId: 'U1', messageId: 'm-1', timestamp: at }]
            const request = parseTrackingRequest(Buffer.from(JSON.stringify({ batch, sentAt })), null)
            const noProofs = { of: () => null }
            return hex(
              (await readTrackingEvents(request, 'k', receivedAtMs, noProofs as never)).accepted[0]?.key,
            )
          }
          expect(await keyOf(again, second)).toBe(await keyOf(timestamp, first))
        },
      ),
    )
  })
})
