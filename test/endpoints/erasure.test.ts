/** After an erasure or an unsend, no body contains the person or the content any more. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { runs } from '../support/runs.ts'

const PEOPLE = ['Uann', 'Ubob', 'Ucai']

const step = fc.oneof(
  fc.record({ type: fc.constant('message' as const), person: fc.constantFrom(...PEOPLE) }),
  fc.record({ type: fc.constant('pair' as const), person: fc.constantFrom(...PEOPLE) }),
  fc.record({ type: fc.constant('join' as const), person: fc.constantFrom(...PEOPLE) }),
  fc.record({ type: fc.constant('erase' as const), person: fc.constantFrom(...PEOPLE) }),
  fc.record({ type: fc.constant('unsend' as const), person: fc.constantFrom(...PEOPLE) }),
  fc.record({ type: fc.constant('retry' as const), accepted: fc.boolean() }),
)

it('sends nothing that was erased or unsent before, in any order of deliveries, failures, erasures and unsends (property)', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 12 }), async (steps) => {
      await database.query('delete from endpoint')
      const receiver = await startReceiver()
      let isAccepting = false
      // One failure after the other, so that no outage begins, in which little is sent.
      Object.defineProperty(receiver, 'answer', {
        get: () => ({ status: isAccepting || receiver.received.length % 4 === 0 ? 200 : 500 }),
      })
      await addEndpoint(receiver.url)
      /** Texts that no body may contain from now on. */
      const gone = new Set<string>()
      const texts = new Map<string, Array<{ id: string; text: string }>>()
      let number = 0
      for (const action of steps) {
        const seen = receiver.received.length
        // Each step's people are new, so that a text belongs to one erasure.
        const userId = 'person' in action ? `${action.person}${steps.length}` : ''
        if (action.type === 'message' || action.type === 'pair') {
          number += 1
          const text = `words ${number} of ${userId}.`
          const message = textMessage(userId, text) as { message: { id: string } }
          texts.set(userId, [...(texts.get(userId) ?? []), { id: message.message.id, text }])
          const others = action.type === 'pair' ? [textMessage('Uother', `untouched ${number}.`)] : []
          await service.deliver(tenant, [message, ...others])
        } else if (action.type === 'join') {
          await service.deliver(tenant, [
            { ...lineEvent('memberJoined', 'Uother'), joined: { members: [{ type: 'user', userId }] } },
          ])
        } else if (action.type === 'erase') {
          const member = await service.member(tenant, userId)
          if (member !== undefined) {
            const { status } = await service.erase(tenant, member.id)
            expect(status).toBe(204)
            for (const { text } of texts.get(userId) ?? []) gone.add(text)
          }
        } else if (action.type === 'unsend') {
          const unsent = texts.get(userId)?.at(-1)
          if (unsent !== undefined) {
            await service.deliver(tenant, [
              { ...lineEvent('unsend', userId), unsend: { messageId: unsent.id } },
            ])
            gone.add(unsent.text)
          }
        } else {
          isAccepting = action.accepted
          await makeDue()
        }
        await becomesQuiet()
        for (const { body } of receiver.received.slice(seen)) {
          for (const text of gone) expect(body).not.toContain(text)
        }
      }
      isAccepting = true
      const seen = receiver.received.length
      await makeDue()
      await becomesQuiet()
      for (const { body } of receiver.received.slice(seen))
        for (const text of gone) expect(body).not.toContain(text)
      expect(await database.query('select from endpoint_delivery')).toEqual([])
    }),
    { numRuns: runs(15) },
  )
})
