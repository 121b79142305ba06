/** Classifies the errors of the database. */
import pg from 'pg'
import { AppError } from '../errors.ts'

/** SQLSTATE: a lock was not acquired in time. */
export const LOCK_TIMEOUT = '55P03'

/** SQLSTATE: a statement took too long or was cancelled. */
export const STATEMENT_TIMEOUT = '57014'

/**
 * SQLSTATE: the statement is not prepared on this connection, or was prepared twice. If preparing it fails, pg has already sent
 * others that rely on it, and then may prepare it again for each of them.
 */
const UNPREPARED = ['26000', '42P05']

/** SQLSTATE: the server is starting, as after a crash, or shutting down. It refuses every connection. */
const CANNOT_CONNECT_NOW = '57P03'

/** SQLSTATE: a row that is referenced does not exist. */
const FOREIGN_KEY_VIOLATION = '23503'

/** All connections for this work are in use: by this account (`account`), or by others (`share`). The database works. */
export class DatabaseBusy extends AppError {
  constructor(reason: 'account' | 'share') {
    super(reason === 'account' ? 'account_busy' : 'busy', { retryAfterSeconds: 1 })
  }
}

/** The database does not answer, or refuses for a temporary reason: full, starting, read-only, disconnected. */
export class DatabaseUnavailable extends AppError {
  constructor(cause: unknown) {
    super('unavailable', { cause, retryAfterSeconds: 2 })
  }
}

/** The error to throw for an error of a query: DatabaseUnavailable if it says nothing about the query. */
export function toFault(error: unknown): unknown {
  if (error instanceof AppError) return error
  return isTemporary(error) ? new DatabaseUnavailable(error) : error
}

/** Whether the connection must not be used again: it is closed, or about to be. */
export function endsConnection(error: unknown): boolean {
  if (!(error instanceof DatabaseUnavailable)) return false
  const { cause } = error
  return !(cause instanceof pg.DatabaseError) || isFatal(cause) || cause.code === READ_ONLY
}

/**
 * Whether another connection may do better. A server that recovers from a crash starts a process for each attempt, only to
 * refuse it, so attempts at the same moment prolong the recovery.
 */
export function isLostConnection(error: unknown): boolean {
  return endsConnection(error) && sqlStateOf(error) !== CANNOT_CONNECT_NOW
}

/** Whether the same statement succeeds if it is sent again on this connection. */
export function isUnprepared(error: unknown): boolean {
  return UNPREPARED.includes(sqlStateOf(error) ?? '')
}

/** The server has become a replica. A new connection may reach the server that took over. */
const READ_ONLY = '25006'

/** The server closes the connection with it: shutdown, a time limit, a crash. */
function isFatal({ severity }: pg.DatabaseError): boolean {
  return severity === 'FATAL' || severity === 'PANIC'
}

/**
 * Classes of SQLSTATE that say nothing about the statement: 08 connection, 25006 read-only,
 * UNPREPARED, 40 serialization and deadlock, 53 resources (disk full, too many connections), 55P03 lock timeout,
 * 57 operator intervention (shutdown, cancel, starting up), 58 system, XX internal. Errors without a SQLSTATE
 * come from the socket.
 */
function isTemporary(error: unknown): boolean {
  const code = (error as { code?: string }).code
  if (!(error instanceof pg.DatabaseError))
    return !(error instanceof TypeError || error instanceof RangeError)
  return (
    code === undefined ||
    isFatal(error) ||
    /^(08|40|53|57|58|XX)/.test(code) ||
    code === READ_ONLY ||
    UNPREPARED.includes(code) ||
    code === LOCK_TIMEOUT
  )
}

/** The SQLSTATE of a database's error, or null for what did not come from the database. */
export function sqlStateOf(error: unknown): string | null {
  const origin = error instanceof DatabaseUnavailable ? error.cause : error
  return origin instanceof pg.DatabaseError ? (origin.code ?? null) : null
}

/** The name of the constraint that refused a statement, or null. Constraints decide; code only translates. */
export function violatedConstraint(error: unknown): string | null {
  if (!(error instanceof pg.DatabaseError) || !error.code?.startsWith('23')) return null
  return error.constraint ?? null
}

/**
 * The values of the foreign key that a statement violated, or an empty list. The detail of the error has them in the form
 * `(column, …)=(value, …)` in every language. A unique value is not returned, because it may be a secret.
 */
export function violatedKey(error: unknown): string[] {
  if (!(error instanceof pg.DatabaseError) || error.code !== FOREIGN_KEY_VIOLATION) return []
  const [, values] = /\([^)]*\)=\(([^)]*)\)/.exec(error.detail ?? '') ?? []
  return values?.split(', ') ?? []
}
