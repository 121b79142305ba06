import pg from 'pg'
import { AppError } from '../errors.ts'

export const LOCK_TIMEOUT = '55P03'

export const STATEMENT_TIMEOUT = '57014'

/** If preparing a statement fails, pg has already pipelined other executions of it, and may prepare it again for each of them. */
const UNPREPARED = ['26000', '42P05']

/** The server is starting or shutting down. */
const CANNOT_CONNECT_NOW = '57P03'

const FOREIGN_KEY_VIOLATION = '23503'

/** All connections for this work are in use, by this account (`account`) or by others (`pool`). The database works. */
export class DatabaseBusy extends AppError {
  constructor(reason: 'account' | 'pool') {
    super(reason === 'account' ? 'account_busy' : 'busy', { retryAfterSeconds: 1 })
  }
}

/** The database does not respond, or refuses for a temporary reason: full, starting, read-only, disconnected. */
export class DatabaseUnavailable extends AppError {
  constructor(cause: unknown) {
    super('unavailable', { cause, retryAfterSeconds: 2 })
  }
}

/** Returns DatabaseUnavailable unless the query itself is at fault. */
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

/** Whether to retry on another connection. A server that recovers from a crash starts a process to refuse each attempt. */
export function isLostConnection(error: unknown): boolean {
  return endsConnection(error) && sqlStateOf(error) !== CANNOT_CONNECT_NOW
}

export function isUnprepared(error: unknown): boolean {
  return UNPREPARED.includes(sqlStateOf(error) ?? '')
}

/** The server has become a replica. A new connection may reach the server that took over. */
export const READ_ONLY = '25006'

/** The server closes the connection after such an error. */
function isFatal({ severity }: pg.DatabaseError): boolean {
  return severity === 'FATAL' || severity === 'PANIC'
}

/**
 * SQLSTATE classes that do not concern the statement: 08 connection (but 08P01 is a wrong number of parameters), 40 serialization and
 * deadlock, 53 resources, 57 operator intervention, 58 system, XX internal. Errors without a SQLSTATE come from the socket.
 */
function isTemporary(error: unknown): boolean {
  const code = (error as { code?: string }).code
  if (!(error instanceof pg.DatabaseError))
    return !(error instanceof TypeError || error instanceof RangeError)
  return (
    code === undefined ||
    isFatal(error) ||
    /^(08(?!P01)|40|53|57|58|XX)/.test(code) ||
    code === READ_ONLY ||
    UNPREPARED.includes(code) ||
    code === LOCK_TIMEOUT
  )
}

/**
 * Whether the database responds, but cannot store: its disk is full, or a column is missing. Excluded are the connection (08), the data
 * (22, 23, 54), a conflict (40), a lock (55), and a time limit or a shutdown (57).
 */
export function preventsStoring(error: unknown): boolean {
  const code = sqlStateOf(error)
  return code !== null && code !== READ_ONLY && !/^(08|22|23|40|54|55|57)/.test(code)
}

/** Whether a temporary fault may be one of the statement, which takes too long or meets damaged data. */
export const isAboutStatement = (error: unknown): boolean => /^(57014|XX)/.test(sqlStateOf(error) ?? '')

export function sqlStateOf(error: unknown): string | null {
  const origin = error instanceof DatabaseUnavailable ? error.cause : error
  return origin instanceof pg.DatabaseError ? (origin.code ?? null) : null
}

export function violatedConstraint(error: unknown): string | null {
  if (!(error instanceof pg.DatabaseError) || !error.code?.startsWith('23')) return null
  return error.constraint ?? null
}

/** The values of the violated foreign key, which the detail has in every language. A unique value may be a secret. */
export function violatedKey(error: unknown): string[] {
  if (!(error instanceof pg.DatabaseError) || error.code !== FOREIGN_KEY_VIOLATION) return []
  const [, values] = /\([^)]*\)=\(([^)]*)\)/.exec(error.detail ?? '') ?? []
  return values?.split(', ') ?? []
}
