/** Plans which message of which channel each announcement becomes a part of. Pure. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import type { AccountStatus, Problem, Reason } from '../../operator/accounts/account-status.ts'
import { type Alert, type Announcement, type Level, levelOf, type Sighting } from './transitions.ts'

/** A message collects accounts for so long: those that break within a minute are one message. */
export const GROUP_MS = 45_000
/** Messages of one channel about one reason. What follows is collected until the hour is over. */
export const PER_HOUR_MAX = 3
const HOUR_MS = 3_600_000

export interface Channel {
  id: bigint
  /** null: all */
  organizationId: OrganizationId | null
  createdAt: number
}

export const covers = (channel: Channel, organizationId: OrganizationId): boolean =>
  channel.organizationId === null || channel.organizationId === organizationId

export type Kind = 'problem' | 'recovery' | 'reminder'

/** A message that is not attempted yet. */
export interface WaitingMessage {
  id: bigint
  channelId: bigint
  kind: string
  reason: string | null
  dueAt: number
}

/** An account of such a message. */
export interface WaitingAccount {
  messageId: bigint
  accountId: AccountId
  before: AccountStatus
}

/** A message of the last hour: when it was sent, or is due. */
export interface RecentMessage {
  channelId: bigint
  kind: string
  reason: string | null
  at: number
}

export interface MessageAccount {
  id: AccountId
  before: AccountStatus
  after: AccountStatus
  problem: Problem | null
  since: number
}

export interface Message {
  /** null: a new one */
  id: bigint | null
  channel: Channel
  kind: Kind
  reason: Reason | null
  dueAt: number
  accounts: MessageAccount[]
}

/** What is stored when the announcements arrive. */
export interface Outgoing {
  channels: Channel[]
  waiting: WaitingMessage[]
  /** only of accounts that are announced */
  waitingAccounts: WaitingAccount[]
  recent: RecentMessage[]
}

export interface Plan {
  messages: Message[]
  /** accounts that leave messages, because they are in another state now */
  removed: WaitingAccount[]
}

const keyOf = (channelId: bigint, kind: string, reason: string | null) => `${channelId} ${kind} ${reason}`

export function planMessages(announcements: Announcement[], outgoing: Outgoing, now: number): Plan {
  const messages = new Map<string, Message>()
  const removed: WaitingAccount[] = []
  const waitingOf = indexWaiting(outgoing)
  const channelsOf = indexChannels(outgoing.channels)
  for (const announcement of announcements)
    for (const channel of channelsOf(announcement.account.organizationId)) {
      const waiting = waitingOf.get(`${channel.id} ${announcement.account.id}`) ?? []
      removed.push(...waiting.map(({ account }) => account))
      const change = changeFor(channel, announcement, waiting)
      if (change === null) continue
      const key = keyOf(channel.id, change.kind, change.reason)
      const message = messages.get(key) ?? openMessage(channel, change, outgoing, now)
      messages.set(key, message)
      message.accounts.push(change.account)
    }
  return { messages: [...messages.values()], removed }
}

/** Returns a function that finds the channels of an organization. There may be a thousand organizations with channels. */
export function indexChannels(channels: Channel[]): (organizationId: OrganizationId) => Channel[] {
  const found = new Map<OrganizationId, Channel[]>()
  return (organizationId) => {
    const known = found.get(organizationId)
    if (known !== undefined) return known
    const covering = channels.filter((channel) => covers(channel, organizationId))
    found.set(organizationId, covering)
    return covering
  }
}

type Waiting = { message: WaitingMessage; account: WaitingAccount }

/** By channel and account. */
function indexWaiting({ waiting, waitingAccounts }: Outgoing): Map<string, Waiting[]> {
  const messageOf = new Map(waiting.map((message) => [message.id, message]))
  const index = new Map<string, Waiting[]>()
  for (const account of waitingAccounts) {
    const message = messageOf.get(account.messageId)
    if (message === undefined) continue
    const key = `${message.channelId} ${account.accountId}`
    index.set(key, [...(index.get(key) ?? []), { message, account }])
  }
  return index
}

interface Change {
  kind: Kind
  reason: Reason
  account: MessageAccount
}

/** Returns null if the channel was already notified of this state: what it was not sent yet leaves its message. */
function changeFor(channel: Channel, announcement: Announcement, waiting: Waiting[]): Change | null {
  const { account, before, since } = announcement
  const after = levelOf(account.status)
  const sent = sentLevel(channel, announcement, waiting)
  if (sent === after) return null
  const common = { id: account.id, before: sent, after: account.status }
  if (account.problem !== null && after !== 'ok') {
    const { problem } = account
    return { kind: 'problem', reason: problem.reason, account: { ...common, problem, since } }
  }
  if (before === null || sent === 'ok') return null
  const recovered = { ...common, problem: null, since: before.at }
  return { kind: 'recovery', reason: before.reason, account: recovered }
}

/** A waiting message has what the channel was sent before it. A channel that was added later was sent nothing. */
function sentLevel(channel: Channel, { before }: Announcement, waiting: Waiting[]): Level {
  const pending = waiting.find(({ message }) => message.kind !== 'reminder')
  if (pending !== undefined) return levelOf(pending.account.before)
  return before === null || before.remindedAt < channel.createdAt ? 'ok' : before.status
}

/** The message that still collects, or a new one. */
function openMessage(channel: Channel, change: Change, outgoing: Outgoing, now: number): Message {
  const { kind, reason } = change
  const isSame = (each: { channelId: bigint; kind: string; reason: string | null }) =>
    each.channelId === channel.id && each.kind === kind && each.reason === reason
  const open = outgoing.waiting.find((each) => isSame(each) && each.dueAt > now)
  const message = { channel, kind, reason, accounts: [] }
  if (open !== undefined) return { ...message, id: open.id, dueAt: open.dueAt }
  const times = outgoing.recent.filter(isSame).map(({ at }) => at)
  return { ...message, id: null, dueAt: dueTime(times, now) }
}

/** @param times when messages of the same channel, kind and reason were or will be sent */
export const dueTime = (times: number[], now: number): number =>
  Math.max(now + GROUP_MS, hourLimit(times, now))

/** Returns when the limit of an hour allows a further message. */
export function hourLimit(times: number[], now: number): number {
  const ofHour = times.filter((at) => at > now - HOUR_MS).sort((a, b) => b - a)
  const first = ofHour[PER_HOUR_MAX - 1]
  return first === undefined ? now : first + HOUR_MS
}

/** One message per channel with all of its accounts that still have the problem. */
export function planReminders(
  alerts: Alert[],
  seen: ReadonlyMap<AccountId, Sighting>,
  channels: Channel[],
  now: number,
): Message[] {
  return channels.flatMap((channel) => {
    const accounts = alerts
      .filter(({ organizationId }) => covers(channel, organizationId))
      .flatMap(({ id, since }) => reminded(seen.get(id), since))
    if (accounts.length === 0) return []
    return [{ id: null, channel, kind: 'reminder' as const, reason: null, dueAt: dueTime([], now), accounts }]
  })
}

function reminded(seen: Sighting | undefined, since: number): MessageAccount[] {
  if (seen === undefined || levelOf(seen.status) === 'ok') return []
  const { id, status, problem } = seen
  return [{ id, before: status, after: status, problem, since }]
}
