/** CONTRACT: POST /api/mbox/callback/:oaHash, the support chat's webhook. */
import { describe, expect, it } from 'vitest'
import { signChat } from '../src/intake/mbox/signature.ts'
import { Secret } from '../src/secret.ts'
import { lineEvent, randomUserId } from '../tools/simulator/events.ts'
import { addTenant } from './support/database.ts'
import { setUpFile } from './support/service.ts'

const { database, service, tenant } = await setUpFile()

let lastId = 1000
function messageCreated(userId: string, rest: Record<string, unknown> = {}) {
  lastId += 1
  return {
    event: 'message_created',
    id: lastId,
    content: 'hello',
    message_type: 'incoming',
    private: false,
    created_at: '2024-05-06T07:08:09.000Z',
    inbox: { id: 3, name: 'LINE' },
    conversation: {
      id: 17,
      status: 'open',
      channel: 'Channel::Line',
      contact_inbox: { contact_id: 5, source_id: userId },
      meta: { sender: { id: 5, name: 'Ann' } },
    },
    account: { id: 1, name: 'MBOX' },
    ...rest,
  }
}

describe('a callback', () => {
  it('makes the person a member, with their conversation', async () => {
    const userId = randomUserId()
    expect((await service.chat(tenant, messageCreated(userId))).json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await service.member(tenant, userId)).toMatchObject({
      relationship: 'unknown',
      eventCount: 1,
      firstSeenAt: '2024-05-06T07:08:09.000Z',
      conversation: { id: '17', status: 'open', updatedAt: '2024-05-06T07:08:09.000Z' },
    })
  })

  it('joins the member that the platform made', async () => {
    const userId = randomUserId()
    await service.deliver(tenant, [lineEvent('follow', userId)])
    await service.chat(tenant, messageCreated(userId))
    expect(await service.member(tenant, userId)).toMatchObject({ relationship: 'following', eventCount: 2 })
  })

  it('of an unknown address is answered 404', async () => {
    expect((await service.chat({ ...tenant, oaHash: 'unknown' }, messageCreated('U1'))).status).toBe(404)
    expect((await service.chat({ ...tenant, oaHash: '%00' }, messageCreated('U1'))).status).toBe(404)
  })

  it('that is no webhook is answered 400', async () => {
    for (const body of ['', 'null', '7', '"x"', '{}', '{"event":7}', '{"event":']) {
      const answer = await service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body })
      expect(answer.status, body).toBe(400)
    }
  })

  it('may be an array; what makes no sense in it is kept and spoils nothing', async () => {
    const userId = randomUserId()
    const answer = await service.chat(tenant, [
      null,
      messageCreated(userId),
      { event: 'x', created_at: {} },
      messageCreated(userId),
    ])
    expect(answer.json).toEqual({ accepted: 4, duplicates: 0 })
    expect((await service.member(tenant, userId))?.eventCount).toBe(2)
    expect((await service.chat(tenant, [])).json).toEqual({ accepted: 0, duplicates: 0 })
  })

  it('of a private note or of typing is not kept', async () => {
    const userId = randomUserId()
    for (const webhook of [
      messageCreated(userId, { private: true }),
      { ...messageCreated(userId), event: 'conversation_typing_on' },
      { ...messageCreated(userId), event: 'conversation_typing_off' },
    ]) {
      expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 0, duplicates: 0 })
    }
    expect(await service.member(tenant, userId)).toBeUndefined()
  })

  it('is kept without the last messages that a conversation lists, which may be private or taken back', async () => {
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
    const kept = await database.query<{ payload: string }>(
      'select payload from event where user_id = $1 order by id',
      [userId],
    )
    expect(kept).toHaveLength(2)
    expect(kept[1]?.payload).toContain('its own')
    for (const { payload } of kept) expect(payload).not.toMatch(/taken back later|a private thought/)
  })

  it('whose word for the event is no word spoils no neighbour', async () => {
    const userId = randomUserId()
    const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
    const body = `[{"event":{"toString":1}},{"event":${deep}},{"event":null},${JSON.stringify(messageCreated(userId))}]`
    const answer = await service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body })
    expect(answer.json).toEqual({ accepted: 4, duplicates: 0 })
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
  })

  it('nested 20,000 levels deep is kept', async () => {
    const body = `${'{"event":"conversation_updated","conversation":'.repeat(20_000)}{}${'}'.repeat(20_000)}`
    const answer = await service.call('POST', `/api/mbox/callback/${tenant.oaHash}`, { body })
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
  })

  it('of another inbox makes no member', async () => {
    const answer = await service.chat(tenant, {
      ...messageCreated(''),
      conversation: {
        id: 1,
        status: 'open',
        channel: 'Channel::WebWidget',
        contact_inbox: { source_id: 'b6e9f2d0-web' },
      },
    })
    expect(answer.json).toEqual({ accepted: 1, duplicates: 0 })
    expect(await service.member(tenant, 'b6e9f2d0-web')).toBeUndefined()
  })

  it('names the person by social_line_user_id too', async () => {
    const userId = randomUserId()
    await service.chat(tenant, {
      event: 'conversation_created',
      id: 9,
      status: 'pending',
      meta: { sender: { additional_attributes: { social_line_user_id: userId } } },
      timestamp: 1_700_000_000,
    })
    expect(await service.member(tenant, userId)).toMatchObject({
      conversation: { id: '9', status: 'pending' },
    })
  })
})

describe('a repeated callback', () => {
  it('loses its content when the message is taken back in the channel, before or after', async () => {
    const userId = randomUserId()
    const copyOf = (id: string) => messageCreated(userId, { source_id: id, content: `words of ${id}` })
    const unsend = (messageId: string) =>
      service.deliver(tenant, [lineEvent('unsend', userId, { unsend: { messageId } })])
    await service.chat(tenant, copyOf('taken-1'))
    await unsend('taken-1')
    await unsend('taken-2')
    await service.chat(tenant, copyOf('taken-2'))
    await service.chat(tenant, copyOf('kept'))
    const words = await database.query(`select payload from event where payload like '%words of%'`)
    expect(words).toEqual([{ payload: expect.stringContaining('words of kept') }])
  })

  it('finds the person behind an empty source id', async () => {
    const userId = randomUserId()
    const sender = { additional_attributes: { social_line_user_id: userId } }
    const conversation = {
      id: 9,
      status: 'open',
      channel: 'Channel::Line',
      contact_inbox: { source_id: '' },
      meta: { sender },
    }
    await service.chat(tenant, messageCreated('', { conversation }))
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1, conversation: { id: '9' } })
  })

  it('is known by its delivery id', async () => {
    const userId = randomUserId()
    const webhook = messageCreated(userId)
    const headers = { 'x-chatwoot-delivery': `delivery-of-${userId}` }
    expect((await service.chat(tenant, webhook, headers)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.chat(tenant, webhook, headers)).json).toEqual({ accepted: 0, duplicates: 1 })
  })

  it('is known by event, id and time of update where there is none', async () => {
    const userId = randomUserId()
    const webhook = { ...messageCreated(userId), updated_at: '2024-05-06 07:08:10 UTC' }
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 0, duplicates: 1 })
    const updated = { ...webhook, event: 'message_updated' }
    expect((await service.chat(tenant, updated)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.chat(tenant, { ...updated, updated_at: '2024-05-06 07:08:11 UTC' })).json).toEqual({
      accepted: 1,
      duplicates: 0,
    })
  })

  it('is known by its content where there is neither', async () => {
    const webhook = messageCreated(randomUserId())
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 1, duplicates: 0 })
    expect((await service.chat(tenant, webhook)).json).toEqual({ accepted: 0, duplicates: 1 })
    expect((await service.chat(tenant, { ...webhook, content: 'edited' })).json).toEqual({
      accepted: 1,
      duplicates: 0,
    })
  })
})

describe('the conversation', () => {
  it('is the newest update, in whatever order they arrive and however times are written', async () => {
    const states = [
      { status: 'open', updated_at: 1_700_000_001 },
      { status: 'pending', updated_at: '1700000002.5' },
      { status: 'resolved', updated_at: '2023-11-14 22:13:24 UTC' },
      { status: 'snoozed', updated_at: '2023-11-14T22:13:23Z' },
    ]
    for (const order of [
      [0, 1, 2, 3],
      [3, 2, 1, 0],
      [2, 0, 3, 1],
    ]) {
      const userId = randomUserId()
      for (const index of order) {
        const webhook = {
          event: 'conversation_updated',
          id: String(index),
          contact_inbox: { source_id: userId },
          ...states[index],
        }
        expect(
          (await service.chat(tenant, webhook, { 'x-chatwoot-delivery': `${userId}-${index}` })).status,
        ).toBe(200)
      }
      expect(await service.member(tenant, userId)).toMatchObject({
        eventCount: 4,
        conversation: { id: '2', status: 'resolved', updatedAt: '2023-11-14T22:13:24.000Z' },
      })
    }
  })
})

describe('the signature', () => {
  it('is required once the account has a chat secret: else 403', async () => {
    const signed = await addTenant(database, { chatSecret: 'chat-secret' })
    const webhook = messageCreated(randomUserId())
    expect((await service.chat(signed, webhook)).status).toBe(200)
    expect((await service.chat({ ...signed, chatSecret: null }, webhook)).status).toBe(403)
    expect((await service.chat({ ...signed, chatSecret: 'wrong' }, webhook)).status).toBe(403)
  })

  it('is good for five minutes', async () => {
    const signed = await addTenant(database, { chatSecret: 'chat-secret' })
    const body = JSON.stringify(messageCreated(randomUserId()))
    for (const [ageSeconds, status] of [
      [290, 200],
      [310, 403],
      [-290, 200],
      [-310, 403],
    ] as const) {
      const timestamp = String(Math.floor(Date.now() / 1000) - ageSeconds)
      const answer = await service.call('POST', `/api/mbox/callback/${signed.oaHash}`, {
        headers: {
          'x-chatwoot-timestamp': timestamp,
          'x-chatwoot-signature': signChat(body, timestamp, new Secret('chat-secret')),
        },
        body,
      })
      expect(answer.status, `${ageSeconds} s`).toBe(status)
    }
  })
})
