/** The load of one account whose instances are replaced or whose primary fails, with its book. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Book, type LoadedAccount } from '../../tools/load/book.ts'
import { RetryingClient } from '../../tools/load/client.ts'
import { findDiscrepancies } from '../../tools/load/compare.ts'
import { Group } from '../../tools/load/group.ts'
import { Loops } from '../../tools/load/loops.ts'
import { Reader } from '../../tools/load/reader.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { addCredentials, type Tenant } from './database.ts'

const GROUPS = 10
/** Three pages of members in all. */
const GROUP_SIZE = 12
/** Leaves the processor to the service. */
const PAUSE_MS = 5
/** Reached only if a member is lost. An instance may read a former primary that still runs until it notices the takeover. */
const FIND_LIMIT_MS = 20_000

export class FailoverLoad {
  readonly client: RetryingClient
  readonly book: Book
  readonly #tenant: Tenant
  readonly #database: TextDatabase
  readonly reader: Reader
  readonly #loops = new Loops()
  /** what ended a loop */
  readonly faults: Error[] = []
  revocations = 0
  revokedAndLetIn = 0

  /** @param database writes credentials, as another program does */
  constructor(
    urls: string[],
    tenant: Tenant,
    database: TextDatabase,
    endpoints: Pick<LoadedAccount, 'lineEvents' | 'membersSecret'> = {},
  ) {
    this.client = new RetryingClient(urls)
    this.book = new Book({ ...tenant, id: tenant.accountId, ...endpoints })
    this.#tenant = tenant
    this.#database = database
    this.reader = new Reader(this.client, this.book)
    for (let no = 0; no < GROUPS; no += 1) {
      const group = new Group(this.client, this.book, GROUP_SIZE, {
        isSequential: true,
        findLimitMs: FIND_LIMIT_MS,
      })
      this.#loops.add(PAUSE_MS, () => group.round())
    }
    this.#loops.add(PAUSE_MS, () => this.#revoke())
  }

  get acknowledged() {
    return { ...this.book.acknowledged, revocations: this.revocations }
  }

  start(): void {
    this.#loops.start((error) => this.faults.push(error))
  }

  /** Resolves when everything that was begun is acknowledged. */
  finish(): Promise<void> {
    return this.#loops.finish()
  }

  /** Compares the book with the database and with what endpoints received, once the load has finished. */
  compare(): Promise<string[]> {
    return findDiscrepancies(this.book, this.reader, this.#database)
  }

  /** All instances must refuse a key from the moment at which its revocation is acknowledged. */
  async #revoke(): Promise<void> {
    const { accountId, organizationId } = this.#tenant
    const added = await this.#untilDone(() => addCredentials(this.#database, accountId, organizationId))
    const revoke = `update api_client set status = 'revoked' where id = $1`
    await this.#untilDone(() => this.#database.query(revoke, [added.clientRowId]))
    this.revocations += 1
    for (const url of this.client.urls) {
      // An upgrade may take an instance out of service during this loop.
      if (!this.client.urls.includes(url)) continue
      const { headers } = added
      const { status } = await this.client.send('revoked', url, '/api/audience?limit=1', { headers })
      if (status === 200) this.revokedAndLetIn += 1
    }
  }

  /** Repeats what is safe to repeat until the database acknowledges it. */
  async #untilDone<T>(work: () => Promise<T>): Promise<T> {
    while (!this.client.isClosed) {
      try {
        return await work()
      } catch {
        await sleep(PAUSE_MS * 10)
      }
    }
    throw new Error('the test ended before the database answered')
  }
}
