/** Real outgoing messages match the webhooks of the OpenAPI document, which receivers read. */
import { Webhook } from 'standardwebhooks'
import { expect, it } from 'vitest'
import { EndpointTester } from '../../src/endpoints/test-delivery.ts'
import { ChannelTester } from '../../src/watch/notifications/history.ts'
import { accountWatch } from '../../src/watch/store-statuses.ts'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { eventOf, KINDS } from '../../tools/simulator/kinds.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { type Received, startReceiver, startSending } from '../support/endpoints.ts'
import { addChannel, addNotification, newSender, startOutbox } from '../support/notifications.ts'
import { faultsOf, openapi } from '../support/openapi.ts'
import { startPlatform } from '../support/platform.ts'
import { startApp } from '../support/service.ts'

const [SECRET, PREVIOUS] = [1, 2].map((byte) => `whsec_${Buffer.alloc(32, byte).toString('base64')}`) as [
  string,
  string,
]

const LINE = 'line.delivery'
const typeOf = ({ body }: Received): string => JSON.parse(body).type ?? LINE
const untilReceived = (received: Received[], count: number) => expect.poll(() => received).toHaveLength(count)

/** Fails unless the body is that of the webhook in the document. */
function expectPublished({ body }: Received, name: string): void {
  const pointer = `#/webhooks/${name}/post/requestBody/content/application~1json/schema`
  expect(faultsOf(pointer, JSON.parse(body)), `${name}: ${body}`).toEqual([])
}

it('publishes a webhook for every type of message', () => {
  expect(Object.keys(openapi.webhooks)).toEqual([
    LINE,
    ...['member.created', 'member.updated', 'member.erased', 'account.verified', 'endpoint.test'],
    ...['account.status', 'platform.status', 'notification.test'],
  ])
})

it('sends endpoints of the format line what the document publishes', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const [replier, observer] = [await startReceiver(), await startReceiver()]
  await addEndpoint(replier.url, { replies: true })
  const id = await addEndpoint(observer.url)
  await service.deliver(
    tenant,
    Object.keys(KINDS).map((kind) => eventOf(kind, randomUserId())),
  )
  for (const { received } of [replier, observer]) await untilReceived(received, 1)
  await new EndpointTester(() => false).test(database, id)
  for (const received of [...replier.received, ...observer.received]) expectPublished(received, LINE)
  expect(observer.received).toHaveLength(2)
})

it('sends endpoints of the format members what the document publishes', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const platform = await startPlatform()
  const verifier = await startApp(database, { config: { lineApiUrl: platform.url } })
  await database.query('update official_account set channel_access_token = $1', [
    platform.account.channelAccessToken,
  ])
  const { url, received } = await startReceiver()
  const id = await addEndpoint(url, { format: 'members', secret: SECRET, previous_secret: PREVIOUS })
  const userId = randomUserId()
  await service.deliver(tenant, [textMessage(userId, 'hello')])
  await untilReceived(received, 1)
  const member = await service.member(tenant, userId)
  expect(JSON.parse(received[0]?.body ?? '').data).toEqual(member)
  await service.put(tenant, member?.id, { tags: ['vip'], attributes: { cups: 3 } })
  await untilReceived(received, 2)
  const updated = { id: member?.id, tags: ['vip'], version: 2 }
  expect(JSON.parse(received[1]?.body ?? '').data).toMatchObject(updated)
  const verification = await verifier.call('POST', '/api/line-oa/verify', { headers: tenant.headers })
  await untilReceived(received, 3)
  expect(JSON.parse(received[2]?.body ?? '').data).toEqual(verification.json)
  await service.erase(tenant, member?.id)
  await untilReceived(received, 4)
  expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(4)
  await new EndpointTester(() => false).test(database, id)
  for (const each of received) {
    // Both secrets are valid while one is replaced by the other.
    for (const secret of [SECRET, PREVIOUS])
      new Webhook(secret).verify(each.body, each.headers as Record<string, string>)
    expectPublished(each, typeOf(each))
  }
  expect(received.map(typeOf)).toEqual([
    ...['member.created', 'member.updated', 'account.verified', 'member.erased', 'endpoint.test'],
  ])
})

it('sends notification channels of the format webhook what the document publishes', async () => {
  const { database } = await createTestDatabase()
  const { accountId } = await addTenant(database, { channelSecret: '' })
  const { url, received } = await startReceiver()
  const channel = await addChannel(database, { format: 'webhook', target: url })
  const watch = accountWatch(database)
  const pass = async () => {
    await database.query(`update notification_watch set passed_at = '-infinity'`)
    await database.query(`update account_check set status_since = status_since - interval '1 minute'`)
    expect(await watch()).toBe(true)
  }
  await pass()
  await pass()
  const outage = { since: new Date().toISOString(), checks: 3, cause: 'line', accounts: 2 }
  const add = (kind: string, accounts: Parameters<typeof addNotification>[2] = [], facts: object = {}) =>
    addNotification(database, channel, accounts, { kind, facts: JSON.stringify(facts) })
  await add('problem', [{ id: accountId }], { cause: 'service' })
  await add('reminder', [{ id: accountId }])
  await add('recovery', [{ id: accountId, before: 'broken', after: 'ok', problem: null }])
  await add('platform_down', [], outage)
  await add('platform_up', [], { ...outage, until: outage.since })
  startOutbox(database)
  await expect
    .poll(() => new Set(received.map(typeOf)))
    .toEqual(new Set(['account.status', 'platform.status']))
  await expect
    .poll(() => database.query('select from notification where sent_at is null and failed_at is null'))
    .toEqual([])
  await new ChannelTester(newSender({ consoleUrl: null })).test(database, channel)
  for (const each of received) expectPublished(each, typeOf(each))
  expect(typeOf(received.at(-1) as Received)).toBe('notification.test')
})
