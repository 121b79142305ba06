/** The load of a soak. */
import { Group } from '../../dist/tools/load/group.js'
import { Loops } from '../../dist/tools/load/loops.js'
import { Reader } from '../../dist/tools/load/reader.js'
import { eventId } from './clock.mjs'

/** Per account. 3 × 100 groups with a pause of 10 s make 30 rounds/s, which are about 104 events/s. */
const GROUPS = 100
const GROUP_SIZE = 10
const GROUP_PAUSE_MS = 10_000
/** Between two of the client's requests of a kind, per account. */
const PAUSES_MS = { walk: 15_000, search: 3_000, feed: 20_000, stream: 60_000, verify: 60_000 }
/** At full rate: senders of deliveries of ten events, each about people of its own, so that they rarely wait for each other. */
const LARGE_SENDERS = 48
const LARGE_GROUP_SIZE = 400
const LARGE_EVENTS = 10
/** Long after the deduplication of the events has ended, and so has the retention of the events. */
const LATE_MS = 25 * 60_000
const LATE_POLL_MS = 1_000

export class Load {
  #loops = new Loops()
  #onFault
  #books
  /** deliveries about erased people, in the order of the times at which they are sent again */
  #late = []
  /** of the accounts, in the order of their books */
  readers

  constructor({ client, books, isFullRate, onFault }) {
    this.#onFault = onFault
    this.#books = books
    const options = {
      eventId,
      onErased: (delivery) => this.#late.push({ ...delivery, atMs: Date.now() + LATE_MS }),
    }
    const groupsOf = (book, count, size) =>
      Array.from({ length: count }, () => new Group(client, book, size, options))
    this.readers = books.map((book) => new Reader(client, book))
    for (const [i, book] of books.entries()) {
      for (const group of groupsOf(book, GROUPS, GROUP_SIZE))
        this.#loops.add(GROUP_PAUSE_MS, () => group.round())
      for (const kind of ['walk', 'search', 'feed', 'stream']) {
        this.#loops.add(PAUSES_MS[kind], () => this.readers[i][kind]())
      }
      const headers = { ...book.account.headers, 'content-type': 'application/json' }
      const verification = { method: 'POST', headers, body: '{}' }
      this.#loops.add(PAUSES_MS.verify, () =>
        client.until('verify', '/api/line-oa/verify', verification, [200]),
      )
    }
    this.#loops.add(LATE_POLL_MS, async () => {
      while (this.#late[0]?.atMs <= Date.now()) {
        const { path, init } = this.#late.shift()
        await client.until('again', path, init, [200])
      }
    })
    // To the last account, which has no endpoint.
    for (const group of isFullRate ? groupsOf(books.at(-1), LARGE_SENDERS, LARGE_GROUP_SIZE) : []) {
      this.#loops.add(0, () => group.deliver(LARGE_EVENTS, 'large'))
    }
  }

  start() {
    this.#loops.start(this.#onFault)
  }

  /** Resolves when everything that was sent is acknowledged. */
  finish() {
    return this.#loops.finish()
  }

  /** Of all accounts together. */
  get acknowledged() {
    const sum = { line: 0, chat: 0, tracking: 0, updates: 0, erasures: 0 }
    for (const { acknowledged } of this.#books) for (const kind in sum) sum[kind] += acknowledged[kind]
    return { ...sum, read: this.readers.reduce((total, { read }) => total + read, 0) }
  }
}
