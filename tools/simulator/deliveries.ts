/** An endless stream of deliveries as a platform sends them: of every kind, repeated, out of order, and now and then empty. */
import { randomInt } from 'node:crypto'
import { signLine } from '../../src/intake/line/signature.ts'
import { Secret } from '../../src/secret.ts'
import { lineBody, randomUserId } from './events.ts'
import { eventOf, KINDS, MESSAGES, messageOf } from './kinds.ts'
import type { SimulatedPerson, SimulatedPlatform } from './platform.ts'

export interface TrafficOptions {
  /** events in one delivery, at most */
  maxEvents: number
  /** share of deliveries that come once more later, 0 to 1 */
  repeats: number
  /** deliveries among which the next one is chosen: 1 keeps their order */
  shuffle: number
}

export interface Delivery {
  body: string
  signature: string
  eventCount: number
  isRepetition: boolean
}

/** Of a hundred events; the rest is shared by all other kinds. */
const MESSAGE_SHARE = 70
const FOLLOW_SHARE = 10
/** One delivery in so many is the empty one of the console's "Verify" button. */
const EMPTY_EVERY = 200

const NAMES = ['Ann', 'Somchai', 'Mali', 'Kenji', 'Yui', 'Wei', 'Nok', 'Ploy', 'Hana', 'Ben', 'Suda', 'Taro']
const LANGUAGES = ['th', 'ja', 'en', 'zh-TW']

const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T

/** People who follow the account, with profiles, as the platform knows them. */
export function addPeople(platform: Pick<SimulatedPlatform, 'people'>, count: number): string[] {
  return Array.from({ length: count }, (_, i) => {
    const userId = randomUserId()
    const person: SimulatedPerson = {
      displayName: `${pick(NAMES)} ${i + 1}`,
      pictureUrl: `https://profile.line-scdn.net/${userId}`,
      language: pick(LANGUAGES),
      isFriend: true,
    }
    platform.people.set(userId, person)
    return userId
  })
}

export function* deliveries(
  platform: Pick<SimulatedPlatform, 'account' | 'people' | 'groups'>,
  { maxEvents, repeats, shuffle }: TrafficOptions,
): Generator<Delivery, never> {
  const userIds = [...platform.people.keys()]
  const channelSecret = new Secret(platform.account.channelSecret)
  const pool: Array<{ events: Array<Record<string, unknown>>; delivery: { isSent: boolean } }> = []
  for (let count = 1; ; count += 1) {
    const isEmpty = count % EMPTY_EVERY === 0
    const events = isEmpty
      ? []
      : Array.from({ length: 1 + randomInt(maxEvents) }, () => eventAbout(platform, pick(userIds)))
    const delivery = { isSent: false }
    pool.push({ events, delivery })
    if (!isEmpty && Math.random() < repeats) pool.push({ events: events.map(redelivered), delivery })
    while (pool.length >= shuffle) {
      const [next] = pool.splice(randomInt(pool.length), 1)
      if (next === undefined) break
      const body = lineBody(platform.account.botUserId, next.events)
      yield {
        body,
        signature: signLine(body, channelSecret),
        eventCount: next.events.length,
        isRepetition: next.delivery.isSent,
      }
      next.delivery.isSent = true
    }
  }
}

function redelivered(event: Record<string, unknown>): Record<string, unknown> {
  return { ...event, deliveryContext: { isRedelivery: true } }
}

function eventAbout(
  { people, groups }: Pick<SimulatedPlatform, 'people' | 'groups'>,
  userId: string,
): Record<string, unknown> {
  const dice = randomInt(100)
  if (dice < MESSAGE_SHARE) {
    return { ...eventOf('message', userId), message: messageOf(pick(Object.keys(MESSAGES))) }
  }
  if (dice < MESSAGE_SHARE + FOLLOW_SHARE) {
    const person = people.get(userId) as SimulatedPerson
    person.isFriend = !person.isFriend
    return eventOf(person.isFriend ? 'follow' : 'unfollow', userId)
  }
  const kind = pick(Object.keys(KINDS).filter((name) => name !== 'follow' && name !== 'unfollow'))
  const event = eventOf(kind, userId)
  const { source } = event as { source?: { groupId?: string } }
  if (source?.groupId !== undefined) groups.set(source.groupId, new Set([userId]))
  return event
}
