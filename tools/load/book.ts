/** The book of one account: what was acknowledged about its people, and what its endpoints must receive. */
import { randomBytes } from 'node:crypto'

/** Newest erased people and unsent messages that a comparison looks for, which bounds the memory of a long run. */
const REMEMBERED_MAX = 2_000

/** A loaded account and the credentials of its client. */
export interface LoadedAccount {
  id: bigint
  oaHash: string
  trackingKey: string
  botUserId: string
  channelSecret: string
  chatSecret: string | null
  headers: Record<string, string>
  /** types of events that its endpoint of the format `line` receives; empty: all; absent: it has none */
  lineEvents?: string[]
  /** of its endpoint of the format `members`; absent: it has none */
  membersSecret?: string
  /** issues an ID token, with which a visit of a page names where the person came from; absent: no visit is proven */
  idTokenOf?: (userId: string) => Promise<string>
  /** the simulated platform's people, from whom the service reads profiles */
  people?: Map<string, { displayName: string; isFriend: boolean }>
}

/** What was acknowledged about one person. */
export interface Person {
  userId: string
  /** LINE, the support chat or a proven visit has named the person: other tracking makes no member */
  isMember: boolean
  /** set before the erasure is requested */
  isLeaving: boolean
  events: number
  updates: number
  relationship: { atMs: number; state: string }
  conversation: { atMs: number; status: string | null }
  /** messages that may be unsent */
  messageIds: string[]
  memberId: string | null
  /** the newest state that the endpoint of the format `members` received */
  received: Received | null
}

interface Received {
  updatedAt: string
  relationship: string
  version: number
  conversation: { status: string } | null
}

export class Book {
  readonly account: LoadedAccount
  /** Begins the user id of each of its people, so that a person of another account is recognised. */
  readonly prefix: string
  readonly people = new Map<string, Person>()
  /** user id → time of the acknowledgement */
  readonly erased = new Map<string, number>()
  readonly unsent = new Set<string>()
  /** event id → whom and which message it is about: sent to the service, and not received from it yet */
  readonly owed = new Map<string, { userId: string; messageId: string | undefined }>()
  /** ids of erased members whose `member.erased` has not arrived yet */
  readonly owedErasures = new Set<string>()
  readonly acknowledged = { line: 0, chat: 0, tracking: 0, updates: 0, erasures: 0 }

  /** @param number tells the accounts of one run apart, 0 to 9 */
  constructor(account: LoadedAccount, number = 0) {
    this.account = account
    this.prefix = `U${number}a`
  }

  newUserId(): string {
    return this.prefix + randomBytes(15).toString('hex')
  }

  addPerson(): Person {
    const userId = this.newUserId()
    const person: Person = {
      userId,
      isMember: false,
      events: 0,
      updates: 0,
      messageIds: [],
      memberId: null,
      received: null,
      isLeaving: false,
      relationship: { atMs: 0, state: 'unknown' },
      conversation: { atMs: 0, status: null },
    }
    this.people.set(userId, person)
    this.account.people?.set(userId, { displayName: `Somchai ${userId.slice(-4)}`, isFriend: true })
    return person
  }

  erase({ userId }: Person): void {
    this.people.delete(userId)
    this.account.people?.delete(userId)
    this.erased.set(userId, Date.now())
    for (const oldest of this.erased.keys()) if (this.erased.size > REMEMBERED_MAX) this.erased.delete(oldest)
    this.acknowledged.erasures += 1
  }

  /** The service may send its content no more. */
  unsend(messageId: string): void {
    this.unsent.add(messageId)
    for (const oldest of this.unsent) if (this.unsent.size > REMEMBERED_MAX) this.unsent.delete(oldest)
  }

  /** Called before a delivery is sent, because its events may arrive before its response. */
  owe(eventId: string, type: string, userId: string, messageId: string | undefined): void {
    const { lineEvents } = this.account
    if (lineEvents === undefined || (lineEvents.length > 0 && !lineEvents.includes(type))) return
    this.owed.set(eventId, { userId, messageId })
  }
}
