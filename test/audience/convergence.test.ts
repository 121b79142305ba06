/**
 * What an event does to a member is commutative and idempotent. Any history of any kinds, shuffled, repeated, split over
 * deliveries and over two instances, with an erasure at any point, ends in the same members.
 */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { lineEvent, ulid } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase, openDatabase, type Tenant } from '../support/database.ts'
import { startPlatform } from '../support/platform.ts'
import { runs } from '../support/runs.ts'
import { type Service, startApp } from '../support/service.ts'

const { database, connection } = await createTestDatabase()
const second = openDatabase(connection)
const platform = await startPlatform()
const config = { lineApiUrl: platform.url }
const service = await startApp(database, { config })
const instances = [service, await startApp(second, { config })]

const PEOPLE = ['a', 'b', 'c'].map((letter) => `U${letter.repeat(32)}`)
const { loginChannelId } = platform.account
const ID_TOKENS = new Map<string, string>()
for (const userId of PEOPLE) ID_TOKENS.set(userId, await platform.login.idToken({ userId, loginChannelId }))
const PAST = Date.now() - 3_600_000

/** Sends one event of a source to a tenant. It can be sent again, and then is a duplicate. */
type Delivery = (to: Service, tenant: Tenant) => Promise<{ status: number; text: string }>

/** 'activated' is not an act of its person. */
const LINE_KINDS = [
  ...(['follow', 'unfollow', 'message', 'postback', 'beacon', 'memberJoined', 'memberLeft'] as const),
  ...(['somethingNew', 'activated'] as const),
]

/** A change of a conversation by an agent, a message of the person, and an answer to it. Each carries the conversation. */
const CHAT_KINDS = ['chat', 'incoming', 'outgoing'] as const
const isChat = (kind: string) => (CHAT_KINDS as readonly string[]).includes(kind)

const step = fc.record({
  kind: fc.constantFrom(...LINE_KINDS, ...CHAT_KINDS, 'page', 'provenPage'),
  person: fc.nat({ max: PEOPLE.length - 1 }),
  other: fc.nat({ max: PEOPLE.length - 1 }),
  offset: fc.integer({ min: 0, max: 5 }),
  status: fc.constantFrom('open', 'resolved', 'pending'),
  salt: fc.integer({ min: 0, max: 9_999 }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/**
 * @param index makes the events of one history distinct
 * @param from the time of the earliest event
 * @param erased the person who is erased: their chat events are their own acts, and their tracking events are in transit from
 * the moment they happen until they are received
 */
function toDelivery(each: Step, index: number, from: number, erased: string | null = null): Delivery {
  const at = from + each.offset
  const id = `${index}-${each.salt}-${at}`
  const userId = PEOPLE[each.person] as string
  if (isChat(each.kind)) {
    const webhook = {
      event: 'conversation_updated',
      id: index,
      status: each.status,
      contact_inbox: { source_id: userId },
      channel: 'Channel::Line',
      updated_at: at / 1000,
    }
    const type = userId === erased || each.kind === 'incoming' ? 'incoming' : 'outgoing'
    const message = { event: 'message_created', message_type: type, id: index, conversation: webhook }
    const isState = each.kind === 'chat' && userId !== erased
    const sent = isState ? webhook : { ...message, created_at: new Date(at).toISOString() }
    return (to, tenant) => to.chat(tenant, sent, { 'x-chatwoot-delivery': id })
  }
  if (each.kind === 'page' || each.kind === 'provenPage') {
    const timestamp = new Date(Math.min(at, Date.now())).toISOString()
    const sentAt = userId === erased ? { sentAt: timestamp } : {}
    const context = each.kind === 'page' ? {} : { idToken: ID_TOKENS.get(userId) }
    const event = { type: 'page', userId, messageId: id, timestamp, context, ...sentAt }
    return (to, tenant) => to.track(tenant, [event])
  }
  const webhookEventId = `${ulid(at).slice(0, 10)}${String(index).padStart(6, '0')}${String(each.salt).padStart(10, '0')}`
  const event = lineEvent(each.kind, null, { ...fieldsOf(each), timestamp: at, webhookEventId })
  return (to, tenant) => to.deliver(tenant, [event])
}

/** The fields of a LINE event that name people. */
function fieldsOf({ kind, person, other }: Step): Record<string, unknown> {
  const members = [PEOPLE[person], PEOPLE[other]].map((userId) => ({ type: 'user', userId }))
  if (kind === 'memberJoined') return { source: { type: 'group', groupId: 'C1' }, joined: { members } }
  if (kind === 'memberLeft') return { source: { type: 'room', roomId: 'R1' }, left: { members } }
  return { source: members[0] }
}

/** Sends the deliveries in their order, so many at the same time, to both instances in turn. */
async function sendAll(tenant: Tenant, deliveries: Delivery[], concurrency: number): Promise<void> {
  for (let start = 0; start < deliveries.length; start += concurrency) {
    const answers = await Promise.all(
      deliveries
        .slice(start, start + concurrency)
        .map((deliver, i) => deliver(instances[i % instances.length] as Service, tenant)),
    )
    for (const { status, text } of answers) expect(status, text).toBe(200)
  }
}

/** The members as clients see them, without the fields that depend on when a row was written. */
async function viewOf(tenant: Tenant) {
  const members = await service.members(tenant)
  return members
    .map(({ id: _, createdAt: __, updatedAt: ___, ...state }) => state)
    .sort((a, b) => a.userId.localeCompare(b.userId))
}

const history = fc.array(step, { minLength: 1, maxLength: 12 })

/** Numbers that fast-check chooses, so that a failure can be repeated. */
const chances = fc.infiniteStream(fc.nat({ max: 1_000_000 })).map((numbers) => ({
  below: (limit: number) => (numbers.next().value as number) % limit,
}))
type Chance = typeof chances extends fc.Arbitrary<infer T> ? T : never

function shuffle<T>(items: T[], chance: Chance): T[] {
  const rest = [...items]
  return items.map(() => rest.splice(chance.below(rest.length), 1)[0] as T)
}

/** About one in `n` of the items. */
const sample = <T>(items: T[], n: number, chance: Chance) => items.filter(() => chance.below(n) === 0)

const add = () => addTenant(database, { loginChannelIds: [loginChannelId] })
const addTwoTenants = async (): Promise<[Tenant, Tenant]> => [await add(), await add()]

it('the members of an audience are the same when a history is shuffled, repeated and split over two instances (property)', async () => {
  await fc.assert(
    fc.asyncProperty(history, chances, async (steps, chance) => {
      const deliveries = steps.map((each, i) => toDelivery(each, i, PAST))
      const repeated = [...deliveries, ...sample(deliveries, 2, chance), ...sample(deliveries, 4, chance)]
      const shuffled = shuffle(repeated, chance)
      const [plain, mixed] = await addTwoTenants()
      await Promise.all([sendAll(plain, deliveries, 1), sendAll(mixed, shuffled, 1 + chance.below(8))])
      expect(await viewOf(mixed)).toEqual(await viewOf(plain))
    }),
    { numRuns: runs(30), endOnFailure: true },
  )
})

it('the members of an audience are those of the newer events alone after an erasure at any point of the history (property)', async () => {
  const person = PEOPLE[0] as string
  const ofPerson = (kind: Step['kind'], index: number, from: number) =>
    toDelivery({ kind, person: 0, other: 0, offset: 0, status: 'open', salt: 0 }, index, from, person)
  const first = ofPerson('message', 99, PAST)
  const inTransit = ofPerson('page', 98, PAST)
  await fc.assert(
    fc.asyncProperty(history, history, chances, async (before, after, chance) => {
      const old = before.map((each, i) => toDelivery(each, i, PAST, person))
      // Later than the erasure. Tracking events stay out, because their times cannot lie in the future.
      const young = after
        .filter(({ kind }) => !['page', 'provenPage'].includes(kind))
        .map((each, i) => toDelivery(each, 100 + i, Date.now() + 60_000, person))
      if (chance.below(2) === 0) young.push(ofPerson('message', 199, Date.now() + 60_000))
      const shuffled = shuffle([...old, ...sample(old, 2, chance)], chance)
      const cut = chance.below(shuffled.length + 1)
      const late = shuffle(
        [...shuffled.slice(cut), first, inTransit, ...young, ...sample(young, 2, chance)],
        chance,
      )
      const [plain, mixed] = await addTwoTenants()

      const inOrder = async () => {
        await sendAll(plain, [first, inTransit, ...old], 1)
        await service.eraseUser(plain, person)
        await sendAll(plain, young, 1)
      }
      const inDisorder = async () => {
        await sendAll(mixed, [first, ...shuffled.slice(0, cut)], 1 + chance.below(4))
        await service.eraseUser(mixed, person)
        await sendAll(mixed, late, 1 + chance.below(8))
      }
      await Promise.all([inOrder(), inDisorder()])
      expect(await viewOf(mixed)).toEqual(await viewOf(plain))
    }),
    { numRuns: runs(20), endOnFailure: true },
  )
})

it('the members of an audience are reported as changed exactly by events that change more than activity (property)', async () => {
  const since = async (tenant: Tenant) => {
    const rows = await database.query<{ user_id: string; at: string }>(
      `select user_id, change || ' ' || updated_at as at from audience_member where channel_oa_id = $1`,
      [tenant.accountId],
    )
    const changes = new Map(rows.map(({ user_id, at }) => [user_id, at]))
    return (await viewOf(tenant)).map(({ firstSeenAt: _, lastSeenAt: __, eventCount: ___, ...state }) => ({
      change: changes.get(state.userId),
      state: { ...state, conversation: { ...state.conversation, updatedAt: null } },
    }))
  }
  const kinds = ['follow', 'unfollow', 'message', 'chat', 'incoming'] as const
  const steps = fc.array(step, { minLength: 15, maxLength: 15 })
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      const tenant = await add()
      let before = await since(tenant)
      for (const [index, each] of history.entries()) {
        const kind = kinds[each.salt % kinds.length] as Step['kind']
        // The chat has two conversations, one after the other.
        const no = isChat(kind) ? Math.floor(index / 8) : index
        // No two are of one time: then only the key, which clients do not see, would be newer.
        const offset = each.offset * history.length + index
        await sendAll(tenant, [toDelivery({ ...each, kind, person: each.person % 2, offset }, no, PAST)], 1)
        const after = await since(tenant)
        for (const { change, state } of after) {
          const earlier = before.find(({ state: { userId } }) => userId === state.userId)
          if (earlier === undefined) continue
          const isEqual = isDeepStrictEqual(earlier.state, state)
          expect(change === earlier.change, JSON.stringify([kind, earlier.state, state])).toBe(isEqual)
        }
        before = after
      }
    }),
    { numRuns: runs(40), endOnFailure: true },
  )
})
