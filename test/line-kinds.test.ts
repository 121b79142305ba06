/** Every kind of event, message and source that LINE documents is stored, applied and counted for the people it names. */
import { describe, expect, it } from 'vitest'
import { randomUserId } from '../tools/simulator/events.ts'
import { eventOf, KINDS, MESSAGES, messageOf } from '../tools/simulator/kinds.ts'
import { addTenant } from './support/database.ts'
import { setUpService } from './support/service.ts'

const { database, service, tenant } = await setUpService()

/** The relationship of the person whom an event of each kind names (null: it names nobody), and how many others it names. */
const EXPECTED: Record<string, { relationship: string | null; others?: number }> = {
  message: { relationship: 'unknown' },
  messageEdited: { relationship: 'unknown' },
  unsend: { relationship: 'unknown' },
  follow: { relationship: 'following' },
  unfollow: { relationship: 'blocked' },
  join: { relationship: 'unknown' },
  leave: { relationship: 'unknown' },
  memberJoined: { relationship: 'unknown', others: 2 },
  memberLeft: { relationship: 'unknown', others: 1 },
  postback: { relationship: 'unknown' },
  videoPlayComplete: { relationship: 'unknown' },
  beacon: { relationship: 'unknown' },
  accountLink: { relationship: 'unknown' },
  membership: { relationship: 'unknown' },
  module: { relationship: null },
  activated: { relationship: 'unknown' },
  deactivated: { relationship: 'unknown' },
  botSuspended: { relationship: null },
  botResumed: { relationship: null },
  delivery: { relationship: null },
}

async function storedKinds(accountId: bigint): Promise<Array<{ kind: string; failure: string | null }>> {
  return database.query('select kind, failure from event where channel_oa_id = $1 order by id', [accountId])
}

describe('an event', () => {
  it('has one of twenty kinds', () => {
    expect(Object.keys(KINDS).sort()).toEqual(Object.keys(EXPECTED).sort())
    expect(Object.keys(KINDS)).toHaveLength(20)
  })

  it.each(Object.entries(EXPECTED))(
    'of the kind %s is stored, applied and recognized when it is redelivered',
    async (kind, expected) => {
      const account = await addTenant(database)
      const userId = randomUserId()
      const event = eventOf(kind, userId)
      expect((await service.deliver(account, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
      const redelivered = { ...event, deliveryContext: { isRedelivery: true } }
      expect((await service.deliver(account, [redelivered])).json).toEqual({ accepted: 0, duplicates: 1 })
      expect(await storedKinds(account.accountId)).toEqual([{ kind, failure: null }])
      const { relationship, others = 0 } = expected
      expect(await service.members(account)).toHaveLength((relationship === null ? 0 : 1) + others)
      if (relationship !== null) {
        expect(await service.member(account, userId)).toMatchObject({ relationship })
      }
    },
  )

  it('in standby mode counts like one in active mode', async () => {
    const userId = randomUserId()
    const { replyToken: _, ...event } = eventOf('message', userId) as Record<string, unknown>
    await service.deliver(tenant, [{ ...event, mode: 'standby' }])
    expect(await service.member(tenant, userId)).toMatchObject({ eventCount: 1 })
  })

  it('of a module channel may name a person by a user id of 68 characters', async () => {
    const userId = `L${randomUserId()}-${randomUserId()}`
    expect(userId).toHaveLength(68)
    await service.deliver(tenant, [eventOf('follow', userId)])
    expect(await service.member(tenant, userId)).toMatchObject({ userId, relationship: 'following' })
  })
})

describe('a message', () => {
  it.each([...Object.keys(MESSAGES), 'hologram'])(
    'of the type %s is stored with its content',
    async (type) => {
      const userId = randomUserId()
      const message = messageOf(type)
      await service.deliver(tenant, [{ ...eventOf('message', userId), message }])
      const [stored] = await database.query<{ payload: string; message_id: string; failure: string | null }>(
        'select payload, message_id, failure from event where user_id = $1',
        [userId],
      )
      expect(stored).toMatchObject({ message_id: message.id, failure: null })
      expect(JSON.parse(stored?.payload ?? '').message).toEqual(message)
    },
  )

  it('makes a member of its author, not of the people whom it mentions', async () => {
    const account = await addTenant(database)
    const [author, mentioned] = [randomUserId(), randomUserId()]
    const mention = { mentionees: [{ type: 'user', index: 0, length: 4, userId: mentioned }] }
    await service.deliver(account, [
      { ...eventOf('message', author, 'group'), message: { ...messageOf('text'), mention } },
    ])
    expect(await service.members(account)).toHaveLength(1)
  })
})
