/** No byte of a person or of a message is written to a receiver after its erasure or unsend was acknowledged. */
import { expect, it } from 'vitest'
import { Contents } from '../../src/endpoints/contents.ts'
import { Connection, connect } from '../../src/endpoints/post.ts'
import { retryEvent } from '../../src/intake/retry-events.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { arrivalsOf, OK, type RawConnection, startRawReceiver } from '../support/raw-receiver.ts'

/** A receiver with four idle connections that holds the next request. */
async function startHolding() {
  const sending = await startSending()
  let isHolding = false
  const held: RawConnection[] = []
  const pending: RawConnection[] = []
  const receiver = await startRawReceiver((connection) => {
    if (isHolding) held.push(connection)
    else if (pending.length < 4) {
      if (pending.push(connection) === 4) for (const { socket } of pending) socket.write(OK)
    } else connection.socket.write(OK)
  })
  await sending.addEndpoint(receiver.url)
  const { service, tenant, becomesQuiet } = sending
  await Promise.all([1, 2, 3, 4].map((no) => service.deliver(tenant, [textMessage(`U${no}`, 'hello')])))
  await becomesQuiet()
  expect(receiver.connections).toHaveLength(4)
  isHolding = true
  const release = () => {
    isHolding = false
    for (const { socket } of held.slice(1)) socket.write(OK)
  }
  return { ...sending, receiver, held, release }
}

it.each(['erasure', 'unsend'])(
  'sends nothing to another idle connection when a receiver resets one after the %s of its content',
  async (kind) => {
    const { service, tenant, receiver, held, release, becomesQuiet } = await startHolding()
    const message = textMessage('Ugone', 'secret words')
    await service.deliver(tenant, [message])
    await expect.poll(() => held).toHaveLength(1)
    const unsend = lineEvent('unsend', 'Ugone', { unsend: { messageId: message.message.id } })
    if (kind === 'erasure') await service.eraseUser(tenant, 'Ugone')
    else expect((await service.deliver(tenant, [unsend])).status).toBe(200)
    const acknowledgedAtMs = performance.now()
    release()
    held[0]?.socket.resetAndDestroy()
    await becomesQuiet()
    expect(arrivalsOf(receiver, 'secret words').filter((atMs) => atMs > acknowledgedAtMs)).toEqual([])
  },
)

/** A delivery that is being sent by another process: what it does with the content is up to the test. */
async function startOther() {
  const sending = await startSending()
  const { database, service, tenant, addEndpoint } = sending
  const endpointId = await addEndpoint('http://127.0.0.1:9/', { status: 'paused' })
  const message = textMessage('Ugone', 'secret words') as unknown as { message: { id: string } }
  await service.deliver(tenant, [message])
  const [row] = await database.query<{ id: bigint }>('select id from endpoint_delivery')
  await database.query(`update endpoint set status = 'active'`)
  await database.query(`update endpoint_delivery set leased_until = now() + interval '1 minute'`)
  const connection = database.pin()
  const delivery = { id: row?.id as bigint, accountId: tenant.accountId, endpointId, attempts: 1 }
  const member = await service.member(tenant, 'Ugone')
  const erase = () => service.erase(tenant, member?.id).then(({ status }) => status)
  const unsend = { ...lineEvent('unsend', 'Ugone'), unsend: { messageId: message.message.id } }
  const takeBack = () => service.deliver(tenant, [unsend]).then(({ status }) => status)
  const contents = new Contents(connection)
  const read = (stop = () => undefined) => contents.read(delivery, true, performance.now() + 10_000, stop)
  return { ...sending, connection, read, erase, takeBack }
}

it.each(['erase', 'takeBack'] as const)(
  '%s is acknowledged only when bodies that were read before are written',
  async (action) => {
    const other = await startOther()
    const content = await other.read()
    expect(content?.row.events).toContain('secret words')
    let isAcknowledged = false
    const acknowledged = other[action]().then((status) => {
      isAcknowledged = true
      return status
    })
    await expect
      .poll(() => other.database.query(`select from pg_locks where classid = 7302 and not granted`))
      .toHaveLength(1)
    expect(isAcknowledged).toBe(false)
    // Nothing that is read from now on may keep it waiting.
    const later = other.read()
    content?.release()
    expect(await acknowledged).toBe(action === 'erase' ? 204 : 200)
    expect((await later)?.row.events ?? '').not.toContain('secret words')
  },
)

it('reports a retried unsend as applied only when bodies that were read before are written', async () => {
  const { read, database, service, tenant } = await startOther()
  await service.deliver(tenant, [{ ...lineEvent('unsend', 'Ugone'), unsend: { messageId: 'another' } }])
  const [failed] = await database.query<{ id: bigint }>(
    `update event u set failure = 'failed in this test', payload = replace(u.payload, 'another', m.message_id)
       from event m where u.kind = 'unsend' and m.payload like '%secret words%' returning u.id`,
  )
  const content = await read()
  let outcome = ''
  const retried = retryEvent(database, failed?.id as bigint).then((result) => {
    outcome = result
  })
  await expect
    .poll(() => database.query(`select from pg_locks where classid = 7302 and not granted`))
    .toHaveLength(1)
  expect(outcome).toBe('')
  content?.release()
  await retried
  expect(outcome).toBe('applied')
})

it('acknowledges an erasure while deliveries of the account are read without a pause', async () => {
  const { read, erase } = await startOther()
  let isErased = false
  const readAgain = async () => {
    while (!isErased) {
      const content = await read()
      await new Promise((resolve) => setTimeout(resolve, 20))
      content?.release()
    }
  }
  const readers = Array.from({ length: 8 }, readAgain)
  expect(await erase()).toBe(204)
  isErased = true
  await Promise.all(readers)
})

it('refuses an erasure, and changes nothing, while the process of a sender is frozen', async () => {
  const { read, erase, service, tenant } = await startOther()
  const content = await read()
  expect(await erase()).toBe(500)
  expect(await service.member(tenant, 'Ugone')).toBeDefined()
  content?.release()
  expect(await erase()).toBe(204)
})

it('stops writing when its database session ends, because erasures no longer wait', async () => {
  const { read, connection, erase } = await startOther()
  let isStopped = false
  await read(() => {
    isStopped = true
  })
  connection.reset()
  await expect.poll(() => isStopped).toBe(true)
  expect(await erase()).toBe(204)
})

it('lets erasures pass when a message cannot be built', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  const endpointId = await addEndpoint(receiver.url, { status: 'paused' })
  await service.deliver(tenant, [textMessage('Ugone', 'hello')])
  await database.query(`update event set payload = '{'`)
  await database.query(`update endpoint set status = 'active' where id = $1`, [endpointId])
  await expect
    .poll(() => database.query(`select from pg_locks where classid = 7302 and granted`))
    .not.toEqual([])
  await service.eraseUser(tenant, 'Ugone')
})

it('ends an attempt whose receiver does not take the body, and lets erasures pass', async () => {
  const silent = await startRawReceiver(() => undefined)
  const message = { headers: {}, body: 'x'.repeat(64 * 1024 * 1024) }
  let releasedAfterMs = 0
  const startedAtMs = performance.now()
  const lookup = () => expect.fail('an address needs no lookup')
  const target = { url: new URL(silent.url), allowPrivateNetwork: true, route: lookup }
  const connection = await connect(target, startedAtMs + 10_000)
  if (!(connection instanceof Connection)) throw new Error('there is no connection')
  const answer = connection.send(message, () => {
    releasedAfterMs ||= performance.now() - startedAtMs
  })
  await expect.poll(() => silent.connections[0]).toSatisfy((connection) => connection !== undefined)
  silent.connections[0]?.socket.pause()
  expect(await answer).toMatchObject({
    status: null,
    reason: 'the endpoint did not take the request within 1 s',
  })
  expect(releasedAfterMs).toBeLessThan(2_500)
})

it('sends to an account of which one person after the other is erased', async () => {
  const { service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  await addEndpoint(receiver.url)
  let isOver = false
  const eraseAgain = async () => {
    while (!isOver) await service.call('DELETE', '/api/audience/5', { headers: tenant.headers })
  }
  const erasing = Array.from({ length: 6 }, eraseAgain)
  for (let no = 1; no <= 5; no += 1) {
    await service.deliver(tenant, [textMessage('Ustays', `message ${no}`)])
    // Less than the lease of a delivery that was given up.
    await expect.poll(() => receiver.received.length, { timeout: 20_000 }).toBe(no)
  }
  isOver = true
  await Promise.all(erasing)
})

it('stores what a receiver echoes in no row but that of the attempt, which erasures clear', async () => {
  const { database, service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  receiver.answer = { status: 400, body: 'you sent secret words' }
  await addEndpoint(receiver.url)
  await service.deliver(tenant, [textMessage('Uecho', 'secret words')])
  await becomesQuiet()
  const stored = await database.query(
    `select d.answer from endpoint_delivery d union all select x.answer from endpoint_answer x`,
  )
  expect(stored).toEqual([{ answer: '' }, { answer: '' }])
})
