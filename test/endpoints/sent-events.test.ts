/** The deliveries of an endpoint as its page lists them: what was accepted, what waits, and what has failed. */
import { expect, it } from 'vitest'
import { type ListedDelivery, listDeliveryPage } from '../../src/endpoints/sent-events.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'

type Status = 'sent' | 'accepted' | 'pending' | 'failed'

async function setUp() {
  const sending = await startSending()
  const { database, tenant, addEndpoint } = sending
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url)
  const list = (status: Status, after?: string, limit = 50) =>
    listDeliveryPage(database, { id, accountId: tenant.accountId }, { status, after }, limit)
  const rows = async (status: Status) => (await list(status)).deliveries
  return { ...sending, receiver, id, list, rows }
}

it('lists accepted, pending and failed events with their person, and links each with its event', async () => {
  const { database, service, tenant, receiver, rows, makeDue, becomesQuiet } = await setUp()
  const [first, second] = [randomUserId(), randomUserId()]
  await service.deliver(tenant, [lineEvent('follow', first)])
  await becomesQuiet()
  await database.query(`update audience_member set display_name = 'Somchai'`)
  receiver.answer = { status: 500 }
  await service.deliver(tenant, [textMessage(first, 'hello')])
  await becomesQuiet()
  await service.deliver(tenant, [textMessage(second, 'hello')])
  await becomesQuiet()
  await database.query(
    'update endpoint_delivery set failed_at = now() where id = (select min(id) from endpoint_delivery)',
  )
  const [follow, failed, pending] = await database.query<{ id: bigint }>('select id from event order by id')
  const person = { userId: first, displayName: 'Somchai' }
  const refused = { attempts: 1, lastStatus: 500, events: 1 }
  const expected = {
    accepted: {
      ...person,
      status: 'accepted',
      kind: 'follow',
      eventId: follow?.id,
      id: null,
      attempts: null,
    },
    failed: { ...person, ...refused, status: 'failed', kind: 'message', eventId: failed?.id },
    pending: { ...refused, status: 'pending', userId: second, displayName: null, eventId: pending?.id },
  }
  for (const status of ['accepted', 'pending', 'failed'] as const)
    expect(await rows(status), status).toMatchObject([expected[status]])
  expect(await rows('sent')).toMatchObject([expected.pending, expected.failed, expected.accepted])

  receiver.answer = { status: 200 }
  const { id } = (await rows('pending'))[0] as ListedDelivery
  await makeDue()
  await expect.poll(() => rows('accepted')).toHaveLength(2)
  expect((await rows('accepted'))[0]).toMatchObject({ id, status: 'accepted', attempts: 2, lastStatus: null })
})

it('lists neither events of other endpoints nor those that its event types excluded, and says if it cannot know', async () => {
  const { database, service, tenant, addEndpoint, rows, becomesQuiet, id } = await setUp()
  const other = await addTenant(database)
  await database.query(`update endpoint set events = '{follow}' where id = $1`, [id])
  await addEndpoint((await startReceiver()).url)
  const userId = randomUserId()
  await service.deliver(tenant, [textMessage(userId, 'hello'), lineEvent('follow', userId)])
  await service.deliver(other, [lineEvent('follow', userId)])
  await becomesQuiet()
  expect(await rows('sent')).toMatchObject([{ kind: 'follow', status: 'accepted' }])
  await service.erase(tenant, (await service.member(tenant, userId))?.id)
  expect(await rows('sent')).toMatchObject([{ kind: 'follow', status: 'unknown', userId: null }])
  expect(await rows('accepted')).toEqual([])
})

it('has pages, also beyond thousands of events that were not queued for the endpoint', async () => {
  const { database, service, tenant, list, becomesQuiet, id } = await setUp()
  for (let count = 0; count < 3; count += 1)
    await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await becomesQuiet()
  await database.query(
    `insert into event (channel_oa_id, source, kind, key, occurred_at, queued_for)
     select $1, 'line', 'message', gen_random_uuid(), now(), '{}' from generate_series(1, 5000)`,
    [tenant.accountId],
  )
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, failed_at)
     select $1, $2, '{}', now() from generate_series(1, 3)`,
    [tenant.accountId, id],
  )
  for (const status of ['sent', 'accepted', 'failed'] as const) {
    const found: unknown[] = []
    let after: string | undefined
    for (let pages = 0; pages < 4; pages += 1) {
      const { deliveries, next }: Awaited<ReturnType<typeof list>> = await list(status, after, 2)
      found.push(...deliveries.map(({ eventId, id }) => eventId ?? id))
      if (next === null) break
      after = next
    }
    expect([status, found.length, new Set(found).size]).toEqual([status, 3, 3])
    expect(found).toEqual(found.toSorted((a, b) => Number(b) - Number(a)))
  }
})

it('lists changed members with their names', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  receiver.answer = { status: 500 }
  const id = await addEndpoint(receiver.url, { format: 'members' })
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await database.query(`update audience_member set display_name = 'Somchai'`)
  const target = { id, accountId: tenant.accountId }
  const rows = async () => (await listDeliveryPage(database, target, { status: 'pending' }, 50)).deliveries
  await expect
    .poll(rows)
    .toMatchObject([{ type: 'member.created', displayName: 'Somchai', kind: null, eventId: null }])
})
