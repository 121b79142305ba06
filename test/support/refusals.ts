/** A receiver that refuses some deliveries with 500, and accepts all others. */
import { expect, onTestFinished } from 'vitest'
import { Sender } from '../../src/endpoints/sender.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { type Sending, startReceiver, startSending } from './endpoints.ts'

/** More than a busy machine takes for one delivery, and less than the pauses of an outage. */
const AT_ONCE = { timeout: 4_500 }

/** @param count deliveries that were refused once, and are due in an hour */
export async function startRefusing(format: 'line' | 'members', count: number) {
  const sending = await startSending()
  const { database, service, tenant, addEndpoint } = sending
  const receiver = await startReceiver((body) => body.includes('Urefused'))
  const id = await addEndpoint(receiver.url, { format, status: 'paused', secret: 'whsec_c2VjcmV0' })
  const people = Array.from({ length: format === 'line' ? 1 : count }, (_, no) => `Urefused${no}`)
  await service.deliver(
    tenant,
    people.map((userId) => lineEvent('follow', userId)),
  )
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, destination, event_keys, created_at)
     select channel_oa_id, endpoint_id, destination, event_keys, created_at from endpoint_delivery, generate_series(2, $1::int)`,
    [count],
  )
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  await expect
    .poll(() => database.query('select from endpoint_delivery where status = 500'))
    .toHaveLength(count)
  await database.query(`update endpoint_delivery set due_at = now() + interval '1 hour'`)
  return {
    ...sending,
    /** Delivers the follow of another person, and expects that it arrives. */
    expectAtOnce: async (userId: string) => {
      await service.deliver(tenant, [lineEvent('follow', userId)])
      await expect.poll(() => receiver.received.some(({ body }) => body.includes(userId)), AT_ONCE).toBe(true)
    },
    restart: () => restart(sending),
  }
}

/** Sends with another sender, as after a restart of the process. */
export async function restart({ database, sender }: Pick<Sending, 'database' | 'sender'>) {
  await sender.stop()
  const next = new Sender(database, () => false)
  next.start()
  onTestFinished(() => next.stop())
}
