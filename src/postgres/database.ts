/** The interface for every query: connections with limits, transactions, and classified errors. */
import { SecretKeys } from '../config/secret-keys.ts'
import { AppError } from '../errors.ts'
import { PinnedConnection } from './pool/pinned-connection.ts'
import type { Claimant } from './pool/turns.ts'
import type { Reads } from './replication/reads.ts'
import type { ReplicationState } from './replication/replication.ts'
import type { Queryable, Transactions } from './statement.ts'

/**
 * `read-only`: it responds, but refuses writes. `failing`: it responds, but the last delivery could not be stored, for example because
 * its disk is full. `down`: it does not respond in time. `none`: started without a database.
 */
export type DatabaseState = 'up' | 'read-only' | 'failing' | 'down' | 'none'

/** The methods of Transactions are for the service's own work and commands, which share the pool of clients. */
export interface Database extends Transactions {
  /** Throws `unavailable` if the service was started without a database. */
  requireConfigured(): void
  /** Never throws. */
  state(): Promise<DatabaseState>
  /** It is called for each delivery, with null if it was stored. `state` depends on the last one. */
  noteDelivery(error: unknown): void
  /** Result of the last check of the standbys. Null if no standby is expected, or before the first check. */
  readonly replication: ReplicationState | null
  /** Clients' reads and writes use it. A query throws DatabaseBusy if it waits too long for a connection. */
  forTenant(tenant: Claimant): Transactions
  readonly intake: Transactions
  /** Pins a connection for frequent pipelines of incoming or outgoing deliveries. */
  pin(): PinnedConnection
  /**
   * For reads that take microseconds, pipelined on a connection that all requests share: one for API clients and one for accounts, so
   * that a lock on one table does not delay the other.
   */
  readonly callers: Queryable
  readonly accounts: Queryable
  /** Runs `work` on a separate connection without time limits, for migrations and other work that is not a request. */
  session<T>(work: (session: Queryable) => Promise<T>): Promise<T>
  /** Reads that replicas may serve. Without replicas, the primary serves them. */
  readonly reads: Reads
  readonly console: Transactions
}

/** Long, because an operator has to configure a database first. */
const RETRY_AFTER_SECONDS = 60

/** The database of a service that was started with DATABASE_URL=none. Every use fails, so no delivery is acknowledged. */
export class NoDatabase implements Database {
  readonly replication = null
  readonly secretKeys = SecretKeys.NONE
  readonly requireConfigured = fail
  readonly noteDelivery = (): void => undefined
  readonly query = refuse
  readonly transaction = refuse
  readonly pipeline = refuse
  readonly session = refuse
  readonly reads: Reads = { forTenant: () => this, streams: () => this, console: () => this }
  readonly callers: Queryable = this
  readonly accounts: Queryable = this
  readonly intake: Transactions = this
  readonly console: Transactions = this

  async state(): Promise<DatabaseState> {
    return 'none'
  }

  forTenant(): Transactions {
    return this
  }

  pin(): PinnedConnection {
    return new PinnedConnection(refuse)
  }
}

async function refuse(): Promise<never> {
  return fail()
}

function fail(): never {
  const cause = new Error('started without a database')
  throw new AppError('unavailable', { cause, retryAfterSeconds: RETRY_AFTER_SECONDS })
}
