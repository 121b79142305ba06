/** The client of an account that reads its members: pages, filters, streams and the delta feed. */
import type { Member } from '../../src/audience/member.ts'
import type { Book } from './book.ts'
import type { RetryingClient } from './client.ts'

const PAGE_SIZE = 50
const FILTERS = ['tag=g0', 'tag=g3', 'relationship=blocked', `q=${encodeURIComponent('สมห')}`]

/** A member, or the id of one that was erased. */
type Listed = Member & { deletedAt?: string }

export class Reader {
  readonly #client: RetryingClient
  readonly #book: Book
  #since = new Date(0).toISOString()
  /** members as a client stores them that reads the delta feed alone, by id */
  readonly copy = new Map<string, Pick<Member, 'version' | 'relationship'>>()
  /** members */
  read = 0
  walks = 0
  feeds = 0

  constructor(client: RetryingClient, book: Book) {
    this.#client = client
    this.#book = book
  }

  /** A walk over all pages returns each member once who was there before it began and is there after it has ended. */
  async walk(): Promise<void> {
    const before = [...this.#book.people.values()].filter(({ isMember }) => isMember)
    const seen = (await this.#readPages('page', '')).map(({ userId }) => userId)
    const found = new Set(seen)
    const missed = before.find(({ isLeaving, userId }) => !isLeaving && !found.has(userId))
    if (missed !== undefined) throw new Error(`a walk over all pages missed ${missed.userId}`)
    if (found.size !== seen.length) throw new Error('a walk over all pages returned a member twice')
    this.walks += 1
  }

  async search(): Promise<void> {
    await this.#page('search', `&${FILTERS[Math.floor(Math.random() * FILTERS.length)]}`)
  }

  async stream(): Promise<Member[]> {
    const headers = { ...this.#book.account.headers, accept: 'application/x-ndjson' }
    const { body } = await this.#client.until('stream', '/api/audience', { headers }, [200])
    const lines = body.split('\n').filter(Boolean)
    return this.#own(lines.map((line) => JSON.parse(line)))
  }

  /** Reads what has changed since the last feed began. */
  async feed(): Promise<void> {
    const beganAt = new Date().toISOString()
    for (const { id, deletedAt, version, relationship } of await this.#readPages(
      'feed',
      `&updatedSince=${this.#since}`,
    )) {
      if (deletedAt === undefined) this.copy.set(id, { version, relationship })
      else this.copy.delete(id)
    }
    this.#since = beganAt
    this.feeds += 1
  }

  /** Each page from any instance. */
  async #readPages(kind: string, query: string): Promise<Listed[]> {
    const entries: Listed[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page = await this.#page(kind, query + (cursor && `&cursor=${encodeURIComponent(cursor)}`))
      entries.push(...page.data)
      cursor = page.nextCursor
    }
    return entries
  }

  async #page(kind: string, query: string): Promise<{ data: Listed[]; nextCursor: string | null }> {
    const { headers } = this.#book.account
    const { body } = await this.#client.until(
      kind,
      `/api/audience?limit=${PAGE_SIZE}${query}`,
      { headers },
      [200],
    )
    const page = JSON.parse(body)
    this.#own(page.data)
    return page
  }

  #own(members: Listed[]): Listed[] {
    this.read += members.length
    const { account, prefix } = this.#book
    const foreign = members.find(
      ({ userId, deletedAt }) => deletedAt === undefined && !userId.startsWith(prefix),
    )
    if (foreign === undefined) return members
    throw new Error(`the client of account ${account.id} read ${foreign.userId} of another account`)
  }
}
