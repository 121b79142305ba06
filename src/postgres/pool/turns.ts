/** Decides which of the requests that wait for a connection gets the next one. */
import { databaseBusy } from '../../observability/facts.ts'
import { DatabaseBusy } from '../faults.ts'

/** The tenant on whose behalf statements run. Nulls stand for the service's background work and commands. */
export interface Claimant {
  accountId: bigint | null
  organizationId: bigint | null
}

/** How long a request waits for its turn. The platforms disconnect after 2 s. */
const WAIT_MAX_MS = 2_000
/** Concurrent statements of one account. While this process reads one result, PostgreSQL works on the other. */
const ACCOUNT_MAX = 2

interface Waiting {
  claimant: Claimant
  start: () => void
}

/**
 * Assigns the connections of one pool in the order of requests, or divided by account. If divided, an account has at most ACCOUNT_MAX
 * turns. An organization that has a turn never takes the last free connection, so one connection remains for all others. The account
 * with the fewest turns goes first, and equal accounts alternate.
 */
export class Turns {
  readonly #pool: string
  readonly #size: number
  readonly #isDivided: boolean
  /** Requests of the account whose last turn is longest ago come first. */
  #waiting: Waiting[] = []
  readonly #running: Claimant[] = []

  constructor(pool: string, size: number, isDivided: boolean) {
    this.#pool = pool
    this.#size = size
    this.#isDivided = isDivided
  }

  get waitingCount(): number {
    return this.#waiting.length
  }

  /** Resolves with a function that ends the turn. Throws DatabaseBusy after WAIT_MAX_MS. */
  take(claimant: Claimant): Promise<() => void> {
    // No waiting request could start now. Starting this one skips nobody in the queue.
    if (this.#mayStart(claimant)) return Promise.resolve(this.#start(claimant))
    return new Promise((resolve, reject) => {
      const waiting = {
        claimant,
        start: () => {
          clearTimeout(timer)
          resolve(this.#start(claimant))
        },
      }
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1)
        reject(this.#refusal(claimant))
      }, WAIT_MAX_MS)
      this.#waiting.push(waiting)
    })
  }

  #mayStart(claimant: Claimant): boolean {
    const free = this.#size - this.#running.length
    if (!this.#isDivided) return free > 0
    const isOrganizationIdle = this.#turnsOf(claimant, 'organizationId') === 0
    return this.#turnsOf(claimant, 'accountId') < ACCOUNT_MAX && free >= (isOrganizationIdle ? 1 : 2)
  }

  #turnsOf(claimant: Claimant, owner: keyof Claimant): number {
    return this.#running.filter((other) => other[owner] === claimant[owner]).length
  }

  #start(claimant: Claimant): () => void {
    this.#running.push(claimant)
    return () => {
      this.#running.splice(this.#running.indexOf(claimant), 1)
      this.#startWaiting()
    }
  }

  #startWaiting(): void {
    for (let next = this.#next(); next !== null; next = this.#next()) {
      const { accountId } = next.claimant
      const others = this.#waiting.filter((waiting) => waiting !== next)
      const isOfAccount = ({ claimant }: Waiting) => claimant.accountId === accountId
      this.#waiting = [...others.filter((waiting) => !isOfAccount(waiting)), ...others.filter(isOfAccount)]
      next.start()
    }
  }

  #next(): Waiting | null {
    let best: Waiting | null = null
    let fewest = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      const { claimant } = waiting
      if (!this.#mayStart(claimant)) continue
      const turns = this.#turnsOf(claimant, 'accountId') + this.#turnsOf(claimant, 'organizationId')
      if (turns < fewest) [best, fewest] = [waiting, turns]
    }
    return best
  }

  #refusal(claimant: Claimant): DatabaseBusy {
    const isOwnLoad = this.#turnsOf(claimant, 'accountId') >= ACCOUNT_MAX || this.#running.length < this.#size
    const reason = isOwnLoad && claimant.accountId !== null ? 'account' : 'pool'
    databaseBusy.publish({ pool: this.#pool, reason })
    return new DatabaseBusy(reason)
  }
}
