/** What every query needs: connections with limits, transactions, and classified errors. Knows nothing of audiences. */

import { AppError } from '../errors.ts'
import { PinnedConnection } from './pinned-connection.ts'
import type { Queryable, Row, SendPipeline, Statement } from './statement.ts'

export interface Database extends Queryable {
  readonly kind: 'postgres' | 'none'
  /** Throws `unavailable` if the service was started without a database. */
  requireConfigured(): void
  /** Sends one statement on any free connection. */
  query<R extends Row>(statement: Statement | string, values?: unknown[]): Promise<R[]>
  /** Sends one read behind others on a connection that all requests share: for queries that take microseconds. */
  lookup<R extends Row>(statement: Statement, values: unknown[]): Promise<R[]>
  /** Commits what `work` did, or rolls all of it back and throws. */
  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>
  /** Sends a transaction of several statements in one round trip. */
  pipeline: SendPipeline
  /** A connection for pipelines that follow each other closely. */
  pin(): PinnedConnection
  /** Runs `work` on a connection of its own, without time limits: migrations and other work that is not a request. */
  session<T>(work: (session: Queryable) => Promise<T>): Promise<T>
  /** Connections for the statements of streams, apart from those of requests. */
  readonly streams: Queryable
}

/** Says how long a caller may wait before it tries again: somebody has to configure a database first. */
const RETRY_AFTER_SECONDS = 60

/** For a service that was started with DATABASE_URL=none: every use fails, so nothing is acknowledged or let through. */
export class NoDatabase implements Database {
  readonly kind = 'none'
  readonly requireConfigured = fail
  readonly query = refuse
  readonly lookup = refuse
  readonly transaction = refuse
  readonly pipeline = refuse
  readonly session = refuse
  readonly streams = { query: refuse }

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
