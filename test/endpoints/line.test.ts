/** Outgoing webhooks of the format `line`. */
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { type Received, startReceiver, startSending } from '../support/endpoints.ts'

const bodies = (received: Array<{ body: string }>) => received.map(({ body }) => JSON.parse(body))

it('an endpoint with replies receives a delivery as LINE sent it, signed with the channel secret', async () => {
  const { service, tenant, addEndpoint, becomesQuiet, database } = await startSending()
  const { url, received } = await startReceiver()
  await addEndpoint(url, { replies: true })
  await database.query('update official_account set bot_user_id = null where id = $1', [tenant.accountId])
  const events = [textMessage(randomUserId(), 'hello'), lineEvent('follow', randomUserId())]
  expect((await service.deliver(tenant, events)).status).toBe(200)
  await becomesQuiet()
  expect(bodies(received)).toEqual([{ destination: tenant.botUserId, events }])
  const { headers, body } = received[0] as Received
  expect(headers).toMatchObject({
    'content-type': 'application/json; charset=utf-8',
    'user-agent': 'LineBotWebhook/2.0',
    'x-line-signature': signLine(body, new Secret(tenant.channelSecret)),
  })
  expect(await database.query('select from endpoint_delivery')).toEqual([])
})

it('a delivery of an account without a channel secret is kept, and sent once there is one', async () => {
  const { service, tenant, addEndpoint, makeDue, becomesQuiet, database } = await startSending()
  const { url, received } = await startReceiver()
  const id = await addEndpoint(url, { status: 'paused' })
  await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  await database.query('update official_account set channel_secret = null')
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  await expect
    .poll(() => database.query('select answer from endpoint_delivery'))
    .toEqual([{ answer: 'the account has no channel secret to sign with' }])
  expect(received).toEqual([])
  await database.query('update official_account set channel_secret = $1', [tenant.channelSecret])
  await makeDue()
  await becomesQuiet()
  expect(received).toHaveLength(1)
})

it('a delivery that a flush wrote while its endpoint was removed is deleted', async () => {
  const { database, tenant } = await startSending()
  const values = [tenant.accountId]
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id) values ($1, 999999999)`,
    values,
  )
  await expect.poll(() => database.query('select from endpoint_delivery')).toEqual([])
})

it('an endpoint without replies receives the event types that it asked for, and only new events', async () => {
  const { service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const { url, received } = await startReceiver()
  await service.deliver(tenant, [lineEvent('follow', 'Ubefore')])
  await addEndpoint(url, { events: ['follow'] })
  const [old, followed, message] = [
    lineEvent('follow', 'Uold'),
    lineEvent('follow', 'Unew'),
    textMessage('Unew', 'hello'),
  ]
  await service.deliver(tenant, [old])
  await becomesQuiet()
  await service.deliver(tenant, [old, followed, message])
  await service.deliver(tenant, [message])
  await becomesQuiet()
  const users = bodies(received).map(({ events }) =>
    events.map((event: { source: { userId: string } }) => event.source.userId),
  )
  expect(users).toEqual([['Uold'], ['Unew']])
})

it('retries what was refused, marks retries, and keeps the status but no text of the receiver', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  await addEndpoint(receiver.url)
  receiver.answer = { status: 500, body: `${'x'.repeat(2_000)}` }
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await becomesQuiet()
  const [row] = await database.query(
    `select status, answer, attempts, due_at - last_attempt_at between interval '5 s' and interval '8 s' as is_later
       from endpoint_delivery`,
  )
  expect(row).toEqual({ status: 500, answer: '', attempts: 1, is_later: true })
  expect(await database.query('select status, answer from endpoint_answer')).toEqual([
    { status: 500, answer: '' },
  ])
  receiver.answer = { status: 204 }
  await makeDue()
  await becomesQuiet()
  expect(await database.query('select from endpoint_delivery')).toEqual([])
  const [first, second] = bodies(receiver.received).map(({ events }) => events[0])
  expect(first).toMatchObject({ deliveryContext: { isRedelivery: false } })
  expect(second).toMatchObject({ deliveryContext: { isRedelivery: true } })
})

it.each([
  [503, '3600', 60],
  [429, '86400', 120],
])(
  'honours Retry-After on %i: after %s s comes a retry in %i minutes, two hours at most',
  async (status, seconds, minutes) => {
    const { database, service, tenant, addEndpoint, becomesQuiet } = await startSending()
    const receiver = await startReceiver()
    await addEndpoint(receiver.url)
    receiver.answer = { status, headers: { 'retry-after': seconds } }
    await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    await becomesQuiet()
    const waits = await database.query(
      `select from endpoint_delivery
      where due_at - now() between $1::int * interval '1 minute' - interval '1 minute' and $1::int * interval '1 minute'`,
      [minutes],
    )
    expect(waits).toHaveLength(1)
  },
)

it('a delivery has failed permanently after 24 hours of refused attempts, and is retried until then', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  await addEndpoint(receiver.url)
  receiver.answer = { status: 400 }
  for (const minutes of [23 * 60 + 55, 24 * 60 + 5]) {
    await service.deliver(tenant, [lineEvent('follow', randomUserId())])
    await becomesQuiet()
    await database.query(
      `update endpoint_delivery set first_attempt_at = now() - $1 * interval '1 minute' where attempts = 1`,
      [minutes],
    )
    await makeDue()
    await becomesQuiet()
  }
  expect(
    await database.query(
      'select attempts, failed_at is not null as failed from endpoint_delivery order by id',
    ),
  ).toEqual([
    { attempts: 3, failed: false },
    { attempts: 2, failed: true },
  ])
})

it('follows no redirect', async () => {
  const { database, service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const [receiver, elsewhere] = [await startReceiver(), await startReceiver()]
  await addEndpoint(receiver.url)
  receiver.answer = { status: 307, headers: { location: elsewhere.url } }
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await becomesQuiet()
  expect(await database.query('select status from endpoint_delivery')).toEqual([{ status: 307 }])
  expect(elsewhere.received).toEqual([])
})

it('pauses an endpoint that answers 410, and keeps its backlog until it is resumed', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url)
  receiver.answer = { status: 410 }
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  await expect.poll(() => database.query(`select from endpoint where status = 'paused'`)).toHaveLength(1)
  await service.deliver(tenant, [lineEvent('follow', 'U2')])
  expect(receiver.received).toHaveLength(1)
  receiver.answer = { status: 200 }
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  await expect
    .poll(async () => {
      await makeDue()
      return receiver.received
    })
    .toHaveLength(3)
  await becomesQuiet()
  expect(await database.query('select from endpoint_delivery')).toEqual([])
})

it('refuses an address that is not public, whatever name leads to it', async () => {
  const { database, service, tenant, addEndpoint, becomesQuiet } = await startSending()
  const { url, received } = await startReceiver()
  const https = url.replace('http:', 'https:')
  await addEndpoint(https, { allow_private_network: false })
  await addEndpoint(https.replace('127.0.0.1', 'localhost'), { allow_private_network: false })
  await service.deliver(tenant, [lineEvent('follow', randomUserId())])
  await becomesQuiet()
  const answers = await database.query('select status, answer from endpoint_delivery order by id')
  expect(answers).toEqual([
    { status: null, answer: 'the address 127.0.0.1 is not public' },
    { status: null, answer: 'localhost resolves to an address that is not public' },
  ])
  expect(received).toEqual([])
})

it('gives reply tokens only to the endpoint that had them when the events came', async () => {
  const { database, service, tenant, addEndpoint, makeDue, becomesQuiet } = await startSending()
  const [first, second] = [await startReceiver(), await startReceiver()]
  const firstId = await addEndpoint(first.url, { replies: true })
  const secondId = await addEndpoint(second.url)
  first.answer = { status: 500 }
  second.answer = { status: 500 }
  await service.deliver(tenant, [{ ...textMessage('U1', 'before'), replyToken: 'token-1' }])
  await becomesQuiet()
  await database.query('update endpoint set replies = false where id = $1', [firstId])
  await database.query('update endpoint set replies = true where id = $1', [secondId])
  await service.deliver(tenant, [{ ...textMessage('U1', 'after'), replyToken: 'token-2' }])
  await becomesQuiet()
  await makeDue()
  await becomesQuiet()
  const withToken = (received: Received[], token: string) =>
    received.filter(({ body }) => body.includes(token)).length
  expect(withToken(first.received, 'token-1')).toBe(1)
  expect(withToken(second.received, 'token-1')).toBe(0)
  expect(withToken(first.received, 'token-2')).toBe(0)
  expect(withToken(second.received, 'token-2')).toBe(2)
})
