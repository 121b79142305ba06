/** What every query needs: connections with limits, transactions, and classified errors. Knows nothing of audiences. */

import { AppError } from '../errors.ts'
import { PinnedConnection } from './pool/pinned-connection.ts'
import type { Claimant } from './pool/turns.ts'
import type { Reads } from './replication/reads.ts'
import type { ReplicationState } from './replication/replication.ts'
import type { Queryable, Row, Statement, Transactions } from './statement.ts'

/** `read-only`: it answers, but stores nothing. `down`: it does not answer in time. `none`: started without a database. */
export type DatabaseState = 'up' | 'read-only' | 'down' | 'none'

/** What a lookup finds. Each kind has a connection of its own, so that a lock on one table does not delay the others. */
export type LookupKind = 'caller' | 'account'

/** The statements of the database itself are the service's own work and commands: they share connections with clients. */
export interface Database extends Transactions {
  readonly kind: 'postgres' | 'none'
  /** Throws `unavailable` if the service was started without a database. */
  requireConfigured(): void
  /** Never throws. No load delays it. */
  state(): Promise<DatabaseState>
  /** What the last check of the standbys found. Null: no standby is expected, or there was no check yet. */
  readonly replication: ReplicationState | null
  /** For a client's reads and writes of an account. Throws DatabaseBusy if it waits too long for a connection. */
  forTenant(tenant: Claimant): Transactions
  /** For batches of deliveries. */
  readonly intake: Transactions
  /** A connection for pipelines of deliveries, in or out, that follow each other closely. Nobody else uses it. */
  pin(): PinnedConnection
  /** Sends one read behind others on a connection that all requests share: for queries that take microseconds. */
  lookup<R extends Row>(kind: LookupKind, statement: Statement, values: unknown[]): Promise<R[]>
  /** Runs `work` on a connection of its own, without time limits: migrations and other work that is not a request. */
  session<T>(work: (session: Queryable) => Promise<T>): Promise<T>
  /** Reads that replicas may serve. Without replicas, the primary serves them. */
  readonly reads: Reads
  /** A connection for the pages of the console, apart from requests of clients and deliveries. */
  readonly console: Transactions
}

/** Says how long a caller may wait before it tries again: somebody has to configure a database first. */
const RETRY_AFTER_SECONDS = 60

/** For a service that was started with DATABASE_URL=none: every use fails, so nothing is acknowledged or let through. */
export class NoDatabase implements Database {
  readonly kind = 'none'
  readonly replication = null
  readonly requireConfigured = fail
  readonly query = refuse
  readonly lookup = refuse
  readonly transaction = refuse
  readonly pipeline = refuse
  readonly session = refuse
  readonly reads: Reads = { forTenant: () => this, streams: () => this, console: () => this }
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
