/** POST /api/mbox/callback/:oaHash, the support chat's webhook. */
import { createHmac } from 'node:crypto'
import { expect, it } from 'vitest'
import { Secret } from '../../src/config/secret.ts'
import { signChat } from '../../src/intake/mbox/mbox-source.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { conversation, message, type Webhook } from '../support/chatwoot.ts'
import { addTenant } from '../support/database.ts'
import { setUpService, startApp } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const ACCEPTED = { accepted: 1, duplicates: 0 }
const DUPLICATE = { accepted: 0, duplicates: 1 }

let lastId = 1000
/** Each call makes another message. */
function messageCreated(userId: string, fields: Webhook = {}): Webhook {
  lastId += 1
  // Only the message has a time.
  const about = conversation(userId, { updated_at: undefined, timestamp: undefined, created_at: undefined })
  return message(userId, { event: 'message_created', id: lastId, conversation: about, ...fields })
}

const post = (body: string) => service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body })

it.each(['unknown', '%00'])('a callback to the unknown address %s is answered 404', async (oaHash) => {
  expect((await service.chat({ ...tenant, oaHash }, messageCreated('U1'))).status).toBe(404)
})

it.each(['', 'null', '7', '"x"', '{}', '{"event":7}', '{"event":'])(
  'a callback whose body is %j is rejected with 400',
  async (body) => {
    expect((await post(body)).status).toBe(400)
  },
)

it.each([
  ['a private note', { private: true }],
  ['typing', { event: 'conversation_typing_on' }],
  ['the end of typing', { event: 'conversation_typing_off' }],
])('a callback about %s is not stored', async (_what, fields) => {
  const userId = randomUserId()
  const answer = await service.chat(tenant, messageCreated(userId, fields))
  expect(answer.json).toEqual({ accepted: 0, duplicates: 0 })
  expect(await service.member(tenant, userId)).toBeUndefined()
})

it('a callback is stored without the messages that its conversation lists: they may be private or unsent', async () => {
  const userId = randomUserId()
  const conversation = {
    id: 5,
    contact_inbox: { source_id: userId },
    messages: [
      { id: 1, content: 'taken back later', private: false },
      { id: 2, content: 'a private thought', private: true },
    ],
  }
  await service.chat(tenant, { ...conversation, event: 'conversation_updated' })
  await service.chat(tenant, { event: 'message_created', id: 3, content: 'its own', conversation })
  const stored = await database.query<{ payload: string }>(
    'select payload from event where user_id = $1 order by id',
    [userId],
  )
  expect(stored).toHaveLength(2)
  expect(stored[1]?.payload).toContain('its own')
  for (const { payload } of stored) expect(payload).not.toMatch(/taken back later|a private thought/)
})

it('a callback loses its content when the person unsends the message in LINE, before or after', async () => {
  const userId = randomUserId()
  const copyOf = (id: string) => messageCreated(userId, { source_id: id, content: `words of ${id}` })
  const unsend = (messageId: string) =>
    service.deliver(tenant, [lineEvent('unsend', userId, { unsend: { messageId } })])
  await service.chat(tenant, copyOf('unsent-1'))
  await unsend('unsent-1')
  await unsend('unsent-2')
  await service.chat(tenant, copyOf('unsent-2'))
  await service.chat(tenant, copyOf('kept'))
  const contents = await database.query(`select payload from event where payload like '%words of%'`)
  expect(contents).toEqual([{ payload: expect.stringContaining('words of kept') }])
})

it('an array of callbacks is stored with its invalid elements, and the others take effect', async () => {
  const userId = randomUserId()
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
  const valid = JSON.stringify(messageCreated(userId))
  const answer = await post(`[null,{"event":{"toString":1}},{"event":${deep}},${valid}]`)
  expect(answer.json).toEqual({ accepted: 4, duplicates: 0 })
  expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
})

it('a callback nested 20,000 levels deep is stored with a failure', async () => {
  const body = `${'{"event":"conversation_updated","conversation":'.repeat(20_000)}{}${'}'.repeat(20_000)}`
  expect((await post(body)).json).toEqual(ACCEPTED)
  const [stored] = await database.query('select failure from event order by id desc limit 1')
  expect(stored).toEqual({ failure: 'the event is nested deeper than 512 levels' })
})

it('the person of another inbox does not become a member', async () => {
  const conversation = {
    id: 1,
    status: 'open',
    channel: 'Channel::WebWidget',
    contact_inbox: { source_id: 'b6e9f2d0-web' },
  }
  expect((await service.chat(tenant, messageCreated('', { conversation }))).json).toEqual(ACCEPTED)
  expect(await service.member(tenant, 'b6e9f2d0-web')).toBeUndefined()
})

it.each([
  ['there is no contact_inbox', {}],
  ['source_id is empty', { channel: 'Channel::Line', contact_inbox: { source_id: '' } }],
])('the person is found by social_line_user_id where %s', async (_, fields) => {
  const userId = randomUserId()
  const meta = { sender: { additional_attributes: { social_line_user_id: userId } } }
  const state = { id: 9, status: 'pending', meta, timestamp: 1_700_000_000, ...fields }
  await service.chat(tenant, { ...state, event: 'conversation_created' })
  await service.chat(tenant, messageCreated('', { conversation: state }))
  expect(await service.member(tenant, userId)).toMatchObject({
    ...{ eventCount: 1, conversation: { id: '9', status: 'pending' } },
  })
})

it('a repeated callback is recognized by its signed body, whatever unsigned delivery id a captured copy has', async () => {
  const signed = await addTenant(database, { chatSecret: 'chat-secret' })
  const webhook = messageCreated(randomUserId())
  const headers = { 'x-chatwoot-delivery': crypto.randomUUID() }
  expect((await service.chat(signed, webhook, headers)).json).toEqual(ACCEPTED)
  const another = { 'x-chatwoot-delivery': crypto.randomUUID() }
  for (const replayed of [another, {}])
    expect((await service.chat(signed, webhook, replayed)).json).toEqual(DUPLICATE)
  const timestamp = String(Math.floor(Date.now() / 1000) - 30)
  const signature = signChat(JSON.stringify(webhook), timestamp, new Secret('chat-secret'))
  const retried = { 'x-chatwoot-timestamp': timestamp, 'x-chatwoot-signature': signature }
  expect((await service.chat(signed, webhook, { ...headers, ...retried })).json).toEqual(DUPLICATE)
})

it('a repeated callback without a delivery id is recognized by event, id and updated_at', async () => {
  const webhook = { ...messageCreated(randomUserId()), updated_at: '2024-05-06 07:08:10 UTC' }
  expect((await service.chat(tenant, webhook)).json).toEqual(ACCEPTED)
  expect((await service.chat(tenant, webhook)).json).toEqual(DUPLICATE)
  const updated = { ...webhook, event: 'message_updated' }
  expect((await service.chat(tenant, updated)).json).toEqual(ACCEPTED)
  const updatedAgain = { ...updated, updated_at: '2024-05-06 07:08:11 UTC' }
  expect((await service.chat(tenant, updatedAgain)).json).toEqual(ACCEPTED)
})

it('a repeated callback without a delivery id and updated_at is recognized by its content', async () => {
  const webhook = messageCreated(randomUserId())
  expect((await service.chat(tenant, webhook)).json).toEqual(ACCEPTED)
  expect((await service.chat(tenant, webhook)).json).toEqual(DUPLICATE)
  expect((await service.chat(tenant, { ...webhook, content: 'edited' })).json).toEqual(ACCEPTED)
})

it('a blank chat secret refuses every callback, signed with it or not', async () => {
  const account = await addTenant(database, { chatSecret: ' ' })
  const webhook = { event: 'contact_updated', id: 1 }
  expect((await service.chat(account, webhook)).status).toBe(403)
  expect((await service.chat({ ...account, chatSecret: null }, webhook)).status).toBe(403)
})

it('a blank callback hash or tracking key names no account', async () => {
  const account = await addTenant(database)
  await database.query(`update official_account set oa_hash = ' ', tracking_key = ' ' where id = $1`, [
    account.accountId,
  ])
  const blank = { ...account, oaHash: '%20', trackingKey: ' ' }
  expect((await service.chat(blank, { event: 'contact_updated', id: 1 })).status).toBe(404)
  const tracked = await service.track(blank, [{ type: 'page', userId: 'U1' }])
  expect(tracked.json).toMatchObject({
    statusCode: 400,
    message: 'Unknown or missing tracking key (writeKey)',
  })
})

it('the signature is required once the account has a chat secret: a callback without it is answered 403', async () => {
  const signed = await addTenant(database, { chatSecret: 'chat-secret' })
  const webhook = messageCreated(randomUserId())
  expect((await service.chat(signed, webhook)).status).toBe(200)
  expect((await service.chat({ ...signed, chatSecret: null }, webhook)).status).toBe(403)
  expect((await service.chat({ ...signed, chatSecret: 'wrong' }, webhook)).status).toBe(403)
})

it.each([
  [300, 200],
  [301, 403],
  [-300, 200],
  [-301, 403],
])('the signature whose age is %i s is answered %i', async (ageSeconds, status) => {
  const nowSeconds = Math.floor(Date.now() / 1000)
  const clocked = await startApp(database, { now: () => nowSeconds * 1000 })
  const signed = await addTenant(database, { chatSecret: 'chat-secret' })
  const body = JSON.stringify(messageCreated(randomUserId()))
  const timestamp = String(nowSeconds - ageSeconds)
  const signature = createHmac('sha256', 'chat-secret').update(`${timestamp}.${body}`).digest('hex')
  const headers = { 'x-chatwoot-timestamp': timestamp, 'x-chatwoot-signature': `sha256=${signature}` }
  const answer = await clocked.call('POST', `/api/mbox/callback/${signed.oaHash}`, { headers, body })
  expect(answer.status).toBe(status)
})
