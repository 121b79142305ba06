import { EventEmitter, once } from 'node:events'
import { expect, it } from 'vitest'
import { lineEvent } from '../../tools/simulator/events.ts'
import { type Received, startReceiver, startSending } from '../support/endpoints.ts'
import { loadMembers } from '../support/load.ts'

const FORMAT = { format: 'members' }
const messages = (received: Received[]) => received.map(({ body }) => JSON.parse(body))
const typesOf = (received: Received[]) => messages(received).map(({ type }) => type)
const untilReceived = (received: Received[], count: number) => expect.poll(() => received).toHaveLength(count)

it('sends what commits after the endpoint was added, and nothing else, also beside a long transaction', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  await loadMembers(database, tenant, 1)
  const changed = new EventEmitter()
  const isChanged = once(changed, 'changed')
  const isAdded = once(changed, 'added')
  const long = database.session(async (session) => {
    await session.query('begin')
    await session.query(`update audience_member set tags = '{late}' where user_id = 'U1'`)
    changed.emit('changed')
    await isAdded
    await session.query('commit')
  })
  await isChanged
  await service.deliver(tenant, [lineEvent('follow', 'Ubefore'), lineEvent('follow', 'Ugone')])
  await service.eraseUser(tenant, 'Ugone')
  await addEndpoint(url, FORMAT)
  const before = await service.member(tenant, 'Ubefore')
  await service.deliver(tenant, [lineEvent('follow', 'Uafter')])
  changed.emit('added')
  await long
  await untilReceived(received, 2)
  await service.put(tenant, before?.id, { tags: ['vip'] })
  await untilReceived(received, 3)
  expect(
    messages(received)
      .map(({ type, data }) => `${type} ${data.userId}`)
      .sort(),
  ).toEqual(['member.created Uafter', 'member.updated U1', 'member.updated Ubefore'])
})

it('sends a member that changed often while the endpoint was down once, in its present state', async () => {
  const { service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  receiver.answer = { status: 500 }
  await addEndpoint(receiver.url, FORMAT)
  await service.deliver(tenant, [lineEvent('follow', 'Uann')])
  await untilReceived(receiver.received, 1)
  const id = (await service.member(tenant, 'Uann'))?.id
  for (let change = 1; change <= 10; change += 1) {
    await service.put(tenant, id, { tags: [`t${change}`] })
  }
  await becomesQuiet()
  receiver.answer = { status: 200 }
  receiver.received.length = 0
  await makeDue()
  await untilReceived(receiver.received, 1)
  expect(messages(receiver.received)[0]).toMatchObject({ type: 'member.created', data: { tags: ['t10'] } })
})

it('reports changes of other programs, in as many steps as it takes, each member once', async () => {
  const { database, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  await addEndpoint(url, FORMAT)
  await loadMembers(database, tenant, 1_200)
  await untilReceived(received, 1_200)
  expect(new Set(messages(received).map(({ data }) => data.userId)).size).toBe(1_200)
  expect(new Set(typesOf(received))).toEqual(new Set(['member.created']))
})

it('reports the types that the endpoint asked for, and no mere activity', async () => {
  const { service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const { url, received } = await startReceiver()
  await addEndpoint(url, { ...FORMAT, events: ['member.updated', 'member.erased'] })
  await service.deliver(tenant, [lineEvent('follow', 'Uann')])
  await service.deliver(tenant, [lineEvent('message', 'Uann')])
  await becomesQuiet()
  await service.deliver(tenant, [lineEvent('unfollow', 'Uann')])
  await untilReceived(received, 1)
  expect(messages(received)[0]).toMatchObject({ type: 'member.updated', data: { relationship: 'blocked' } })
})

it('keeps the changes of a paused endpoint', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const { url, received } = await startReceiver()
  const id = await addEndpoint(url, { ...FORMAT, status: 'paused' })
  await service.deliver(tenant, [lineEvent('follow', 'Uann')])
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  await untilReceived(received, 1)
  expect(typesOf(received)).toEqual(['member.created'])
})
