/** Refused deliveries and a receiver that is down, in the process that saw it and after a restart. */
import { expect, it } from 'vitest'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { restart, startRefusing } from '../support/refusals.ts'

it.each([
  ['line', 40, 'after a restart'],
  ['members', 12, 'after a restart'],
  ['members', 40, 'in the same process'],
] as const)(
  'sends to a %s endpoint at once behind %i refused deliveries, %s',
  async (format, count, where) => {
    const { database, expectAtOnce, restart } = await startRefusing(format, count)
    if (where === 'after a restart') await restart()
    await expectAtOnce('Ulater')
    await expect.poll(() => database.query('select from endpoint_delivery')).toHaveLength(count)
    // Only a recovery from an outage makes retries due.
    expect(
      await database.query(`select from endpoint_delivery where due_at < now() + interval '30 minutes'`),
    ).toEqual([])
  },
)

it('stops sending to a receiver that answers 503, and tries one delivery after a restart', async () => {
  const sending = await startSending()
  const { database, service, tenant, addEndpoint, makeDue } = sending
  const receiver = await startReceiver()
  const { received } = receiver
  receiver.answer = { status: 503 }
  const id = await addEndpoint(receiver.url, { status: 'paused' })
  for (let no = 0; no < 20; no += 1) await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  const sendUntil = async (count: number) => {
    await expect.poll(() => received.length).toBeGreaterThanOrEqual(count)
    const isSending = () => database.query('select from endpoint_delivery where leased_until > now()')
    await expect.poll(isSending).toEqual([])
    return received.length
  }
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  const before = await sendUntil(5)
  // Five failures, and the requests that were in flight.
  expect(before).toBeLessThan(10)
  await restart(sending)
  await makeDue()
  expect((await sendUntil(before + 1)) - before).toBeLessThan(3)
})
