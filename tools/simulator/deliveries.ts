/** An endless stream of deliveries as a platform sends them: all event kinds, duplicates, out of order, sometimes empty. */
import { randomInt } from 'node:crypto'
import { Secret } from '../../src/config/secret.ts'
import { signLine } from '../../src/line-api/line-signature.ts'
import { lineBody, randomUserId } from './events.ts'
import { eventOf, KINDS, MESSAGES, messageOf } from './kinds.ts'
import type { PlatformState, SimulatedPerson } from './state.ts'

export interface TrafficOptions {
  /** maximum number of events in one delivery */
  maxEvents: number
  /** share of deliveries that are sent again later, 0 to 1 */
  repeats: number
  /** number of pending deliveries from which the next one is picked; 1 keeps their order */
  shuffle: number
}

export interface Delivery {
  body: string
  signature: string
  eventCount: number
  isRepetition: boolean
}

/** Percentages of all events. The other kinds share the remaining 20 %. */
const MESSAGE_PERCENT = 70
const FOLLOW_PERCENT = 10
/** Every 200th delivery is empty, like the one that the console's "Verify" button sends. */
const EMPTY_INTERVAL = 200

const NAMES = ['Ann', 'Somchai', 'Mali', 'Kenji', 'Yui', 'Wei', 'Nok', 'Ploy', 'Hana', 'Ben', 'Suda', 'Taro']
const LANGUAGES = ['th', 'ja', 'en', 'zh-TW']

const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T

/** Adds people with profiles who follow the account. Returns their user ids. */
export function addPeople(platform: Pick<PlatformState, 'people'>, count: number): string[] {
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
  platform: Pick<PlatformState, 'account' | 'people' | 'groups'>,
  { maxEvents, repeats, shuffle }: TrafficOptions,
): Generator<Delivery, never> {
  const userIds = [...platform.people.keys()]
  const channelSecret = new Secret(platform.account.channelSecret)
  const pending: Array<{ events: Array<Record<string, unknown>>; delivery: { isSent: boolean } }> = []
  for (let count = 1; ; count += 1) {
    const isEmpty = count % EMPTY_INTERVAL === 0
    const events = isEmpty
      ? []
      : Array.from({ length: 1 + randomInt(maxEvents) }, () => eventAbout(platform, pick(userIds)))
    const delivery = { isSent: false }
    pending.push({ events, delivery })
    if (!isEmpty && Math.random() < repeats) pending.push({ events: events.map(redelivered), delivery })
    while (pending.length >= shuffle) {
      const [next] = pending.splice(randomInt(pending.length), 1)
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
  { people, groups }: Pick<PlatformState, 'people' | 'groups'>,
  userId: string,
): Record<string, unknown> {
  const dice = randomInt(100)
  if (dice < MESSAGE_PERCENT) {
    return { ...eventOf('message', userId), message: messageOf(pick(Object.keys(MESSAGES))) }
  }
  if (dice < MESSAGE_PERCENT + FOLLOW_PERCENT) {
    const person = people.get(userId) as SimulatedPerson
    person.isFriend = !person.isFriend
    // Everybody was a friend at first, so a follow is a return.
    return person.isFriend
      ? { ...eventOf('follow', userId), follow: { isUnblocked: true } }
      : eventOf('unfollow', userId)
  }
  const kind = pick(Object.keys(KINDS).filter((name) => name !== 'follow' && name !== 'unfollow'))
  const event = eventOf(kind, userId)
  const { source } = event as { source?: { groupId?: string } }
  if (source?.groupId !== undefined) groups.set(source.groupId, new Set([userId]))
  return event
}
