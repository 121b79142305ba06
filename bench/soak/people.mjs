/**
 * The people of all accounts, each with the book of what was acknowledged about them. Their number is fixed: a new person replaces
 * an erased one, so the memory of this program stays bounded.
 */
import { randomBytes } from 'node:crypto'

/** Per account. */
const PEOPLE = 1_000
/** Of the account that takes the full rate, so that its deliveries rarely wait for each other's members. */
const PEOPLE_AT_FULL_RATE = 20_000
/** Erased people and unsent messages that later checks look for. */
const REMEMBERED_MAX = 2_000
const NAMES = ['Ann', 'Somchai', 'Mali', 'Kenji', 'Yui', 'Wei', 'Nok', 'Ploy', 'สมหญิง', '山田花子']

/** The second and third character of a user id name the account, so that a foreign member is recognised without a list. */
export const belongsTo = (tenant, userId) => userId.startsWith(prefixOf(tenant))

const prefixOf = ({ number }) => `U${number}a`

export function userIdOf(tenant) {
  return `${prefixOf(tenant)}${randomBytes(15).toString('hex')}`
}

/** What was acknowledged about one person. `busy` counts requests in flight that name the person. */
function newPerson(tenant, userId) {
  return {
    tenant,
    userId,
    /** a source that makes members has named the person: tracking alone makes none */
    isMember: false,
    /** events that count, by source: LINE and support chat, and tracking */
    acts: 0,
    tracked: 0,
    /** set as soon as a delivery names the person */
    isGreeted: false,
    /** a delivery about this person alone, to be delivered again after the erasure */
    firstDelivery: null,
    relationship: { atMs: 0, state: 'unknown' },
    conversation: { atMs: 0, status: null },
    messageIds: [],
    memberId: null,
    updates: 0,
    isUpdating: false,
    busy: 0,
    isLeaving: false,
    /** the newest state that the endpoint of the format `members` received */
    received: null,
  }
}

export class People {
  #random
  #lists = new Map()
  #byUserId = new Map()
  /** user id → {tenant, firstDelivery, atMs: time of the acknowledgement} */
  erased = new Map()
  /** message ids of LINE */
  unsent = new Set()
  erasures = 0

  constructor(tenants, isFullRate, random) {
    this.#random = random
    for (const tenant of tenants) {
      this.#lists.set(tenant, [])
      const count = isFullRate && tenant === tenants.at(-1) ? PEOPLE_AT_FULL_RATE : PEOPLE
      for (let slot = 0; slot < count; slot += 1) this.#add(tenant, slot)
    }
  }

  of(tenant) {
    return this.#lists.get(tenant)
  }

  find(userId) {
    return this.#byUserId.get(userId)
  }

  /** A person who is not about to be erased and whom `isWanted` accepts, or null. */
  pick(tenant, isWanted = () => true) {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const person = this.#random.pick(this.of(tenant))
      if (!person.isLeaving && isWanted(person)) return person
    }
    return null
  }

  /** Stores the erasure and lets a new person take the place. */
  replace(person) {
    const { tenant, userId, firstDelivery } = person
    this.erased.set(userId, { tenant, firstDelivery, atMs: Date.now() })
    if (this.erased.size > REMEMBERED_MAX) this.erased.delete(this.erased.keys().next().value)
    this.erasures += 1
    this.#byUserId.delete(userId)
    tenant.people.delete(userId)
    this.#add(tenant, this.of(tenant).indexOf(person))
  }

  unsend(messageId) {
    this.unsent.add(messageId)
    if (this.unsent.size > REMEMBERED_MAX) this.unsent.delete(this.unsent.values().next().value)
  }

  #add(tenant, slot) {
    const userId = userIdOf(tenant)
    const person = newPerson(tenant, userId)
    this.of(tenant)[slot] = person
    this.#byUserId.set(userId, person)
    const displayName = `${this.#random.pick(NAMES)} ${slot}`
    tenant.people.set(userId, {
      displayName,
      pictureUrl: `https://profile/${userId}`,
      language: 'th',
      isFriend: true,
    })
  }
}
