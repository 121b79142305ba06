/** Existing tools work unchanged behind this service. */
import { expect, it } from 'vitest'
import { listDeliveries, previewDelivery } from '../../src/endpoints/endpoints.ts'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { eventOf, KINDS } from '../../tools/simulator/kinds.ts'
import { startSending } from '../support/endpoints.ts'
import { startChatwoot, startLineBot } from '../support/receivers.ts'
import { setBackEvents, startReplaying } from '../support/replays.ts'

/** Kinds of which LINE's OpenAPI document requires a token. */
const WITH_DUMMY = ['follow', 'join', 'memberJoined', 'videoPlayComplete', 'beacon', 'membership']
/** An event as an endpoint receives it that may not reply. */
const inStandby = ({ replyToken: _, ...event }: Record<string, unknown>) => ({
  ...event,
  mode: 'standby',
  ...(WITH_DUMMY.includes(event.type as string) && { replyToken: '00000000000000000000000000000000' }),
})

/** An unsend would delete a message. */
const everyKind = () =>
  Object.keys(KINDS)
    .filter((kind) => kind !== 'unsend')
    .map((kind) => eventOf(kind, randomUserId()))

const length = <T>(list: T[], wanted: number) =>
  expect.poll(() => list).toSatisfy(({ length: found }) => found >= wanted)

it("LINE's SDK verifies and parses every kind of event, with and without reply tokens", async () => {
  const { service, tenant, addEndpoint } = await startSending()
  const [replier, observer] = [
    await startLineBot(tenant.channelSecret),
    await startLineBot(tenant.channelSecret),
  ]
  await addEndpoint(replier.url, { replies: true })
  await addEndpoint(observer.url)
  const text = 'สวัสดีค่ะ ☕ 𠮷\u2028"\\'
  const delivery = [...everyKind(), textMessage(randomUserId(), text, { replyToken: 'a'.repeat(32) })]
  expect((await service.deliver(tenant, delivery)).status).toBe(200)
  await Promise.all([length(replier.events, delivery.length), length(observer.events, delivery.length)])
  expect(replier.events).toEqual(delivery)
  expect(observer.events).toEqual(delivery.map(inStandby))
  expect([...replier.refusals, ...observer.refusals]).toEqual([])
})

it('an endpoint that may not reply receives the same tokens first, in a retry, in a replay and in a preview', async () => {
  const { database, service, tenant, addReceiver, replay, endOf, makeDue, becomesQuiet } =
    await startReplaying()
  const { receiver, id } = await addReceiver()
  receiver.answer = { status: 500 }
  const events = everyKind()
  await service.deliver(tenant, events)
  await becomesQuiet()
  const [pending] = await listDeliveries(database, id, 'pending', { limit: 1 })
  const preview = await previewDelivery(
    database,
    { id, accountId: tenant.accountId },
    pending?.id as bigint,
    0,
  )
  receiver.answer = { status: 200 }
  await makeDue()
  await becomesQuiet()
  await setBackEvents(database)
  await endOf(await replay(id))
  const bodies = [preview.body as string, ...receiver.received.map(({ body }) => body)]
  expect(bodies).toHaveLength(4)
  const redelivery = { deliveryContext: { isRedelivery: true } }
  for (const [index, body] of bodies.entries()) {
    const expected = events.map((event) => ({ ...inStandby(event), ...(index > 1 && redelivery) }))
    expect(JSON.parse(body).events).toEqual(expected)
  }
})

it("LINE's SDK refuses what is signed with another channel secret, and accepts the retry once the secrets agree", async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const bot = await startLineBot('the new secret')
  await addEndpoint(bot.url)
  await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  await length(bot.refusals, 1)
  await expect.poll(() => database.query('select from endpoint_delivery where status = 401')).toHaveLength(1)
  await database.query(`update official_account set channel_secret = 'the new secret'`)
  await database.query('update endpoint_delivery set due_at = now()')
  await length(bot.events, 1)
  expect(bot.events).toMatchObject([{ message: { text: 'hello' }, deliveryContext: { isRedelivery: true } }])
})

it("Chatwoot's LINE inbox receives the messages of people, without reply tokens and in standby", async () => {
  const { service, tenant, addEndpoint } = await startSending()
  const chatwoot = await startChatwoot('2000000001', tenant.channelSecret)
  await addEndpoint(chatwoot.url)
  const message = textMessage(randomUserId(), 'ขอเมนูหน่อย')
  const sticker = eventOf('message', randomUserId())
  await service.deliver(tenant, [
    message,
    eventOf('follow', randomUserId()),
    eventOf('message', randomUserId(), 'group'),
  ])
  await service.deliver(tenant, [sticker])
  await length(chatwoot.messages, 2)
  expect(chatwoot.messages[0]).toEqual({
    sourceId: message.message.id,
    contact: expect.stringMatching(/^U/),
    content: 'ขอเมนูหน่อย',
  })
  expect(chatwoot.droppedBodies()).toBe(0)
})
