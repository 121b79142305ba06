/** Erasures and unsends during a replay: nothing that was erased is sent, nothing else is missing, and nothing is sent twice. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { takeTurn } from '../../src/jobs/turn.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { startReceiver } from '../support/endpoints.ts'
import { endWaitsOfJobs } from '../support/jobs.ts'
import { eventsOf, setBackEvents, startReplaying, textsOf } from '../support/replays.ts'
import { runs } from '../support/runs.ts'

const PEOPLE = 4

const stored = fc.record({
  person: fc.nat(PEOPLE - 1),
  type: fc.constantFrom('message' as const, 'follow' as const, 'joined' as const, 'left' as const),
  /** who joined or left */
  other: fc.nat(PEOPLE - 1),
})
const step = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ type: 'turn' as const, at: 0 }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('erase' as const), at: fc.nat(PEOPLE - 1) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('unsend' as const), at: fc.nat(30) }) },
)

it('sends nothing that was erased or unsent, all else once and in order, with any erasures between the requests (property)', async () => {
  const { database, sender, service, tenant, addEndpoint, replay, job } = await startReplaying(false)
  let run = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(stored, { minLength: 5, maxLength: 30 }),
      fc.array(step, { maxLength: 16 }),
      fc.constantFrom(30, 100, 200),
      async (events, steps, rate) => {
        run += 1
        await database.query(
          `update job set status = 'cancelled', finished_at = now() where status = 'running'`,
        )
        const userIdOf = (person: number) => `U${run}person${person}x`
        const from = new Date(Date.now() - 60_000).toISOString()
        const messages: Array<{ id: string; text: string; person: number }> = []
        for (const [no, { person, type, other }] of events.entries()) {
          const text = `${run} words ${no}.`
          const message = textMessage(userIdOf(person), text) as unknown as { message: { id: string } }
          if (type === 'message') messages.push({ id: message.message.id, text, person })
          const group = { source: { type: 'group', groupId: 'C1', userId: userIdOf(person) } }
          const people = { [type]: { members: [{ type: 'user', userId: userIdOf(other) }] } }
          const kinds = {
            message,
            follow: lineEvent('follow', userIdOf(person)),
            joined: lineEvent('memberJoined', userIdOf(person), { ...group, ...people }),
            left: lineEvent('memberLeft', userIdOf(person), { ...group, ...people }),
          }
          await service.deliver(tenant, [kinds[type]])
        }
        await setBackEvents(database)
        const receiver = await startReceiver()
        const started = await replay(await addEndpoint(receiver.url), { from, rate })
        const gone = new Set<string>()
        const isOver = async () => (await job(started)).finishedAt !== null
        const takeTurns = async (until: () => Promise<boolean>) => {
          const seen = receiver.received.length
          await expect
            .poll(async () => {
              await takeTurn(database, { turnMs: 0, onQueued: (id) => sender.expect([id]) })
              await endWaitsOfJobs(database)
              return (await until()) || isOver()
            })
            .toBe(true)
          // An unsend that arrives after the erasure of its person is a live delivery.
          const replayed = eventsOf({ received: receiver.received.slice(seen) }).filter(
            ({ deliveryContext }) => deliveryContext?.isRedelivery,
          )
          for (const text of gone) expect(JSON.stringify(replayed)).not.toContain(text)
        }
        for (const { type, at } of steps) {
          const { length } = receiver.received
          if (type === 'turn') await takeTurns(async () => receiver.received.length > length)
          else if (type === 'erase') {
            if ((await service.member(tenant, userIdOf(at))) === undefined) continue
            await service.eraseUser(tenant, userIdOf(at))
            gone.add(userIdOf(at))
            for (const { person, text } of messages) if (person === at) gone.add(text)
          } else if (messages.length > 0) {
            const { id, text, person } = messages[at % messages.length] as (typeof messages)[0]
            const unsend = { ...lineEvent('unsend', userIdOf(person)), unsend: { messageId: id } }
            await service.deliver(tenant, [unsend])
            gone.add(text)
          }
        }
        await takeTurns(isOver)
        expect((await job(started)).status).toBe('done')
        const sent = textsOf(receiver).filter((text) => text?.startsWith(`${run} `))
        const expected = messages
          .map(({ text }) => text)
          .filter((text) => !gone.has(text) || sent.includes(text))
        expect(sent).toEqual(expected)
        await database.query('delete from endpoint')
      },
    ),
    { numRuns: runs(20) },
  )
})
