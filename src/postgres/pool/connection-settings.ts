/** What every connection has: session settings, which override the defaults of the role and the database, and a check of commits. */
import type { EventEmitter } from 'node:events'
import type { Duplex } from 'node:stream'
import type pg from 'pg'

/** A hundred times what a statement of a request should take, and short enough that accepted work ends before a shutdown does. */
export const STATEMENT_TIMEOUT_MS = 5_000
/** A delivery waits for three locks at worst: 3 × 600 ms = 1.8 s. LINE disconnects after 2 s. */
const LOCK_TIMEOUT_MS = 600

/** Not every build of the server supports the value. */
const setWherePossible = (name: string, value: string) => `do $$ begin
    perform set_config('${name}', '${value}', false);
  exception when others then null;
  end $$`

/** Ends a statement of a killed process. */
const CONNECTION_CHECK = setWherePossible('client_connection_check_interval', '1s')

/** lz4 compresses a 3.2 KB payload of a support chat in 8 µs, and pglz in 19 µs to the same size. */
const COMPRESSION = setWherePossible('default_toast_compression', 'lz4')

const TEXTS = `set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres'; set extra_float_digits = 1; set bytea_output = 'hex'`

/** Erasures and flushes need each statement to see what was committed before it. Temporary tables must not shadow ours. */
const COMMON = `${TEXTS}; set standard_conforming_strings = on; set timezone = 'UTC';
  set default_transaction_isolation = 'read committed';
  select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';
  select set_config('client_min_messages', 'warning', false) where current_setting('client_min_messages') = 'error';
  select set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), 'pg_temp'), false)
   where current_setting('search_path') !~ 'pg_temp';
  ${COMPRESSION};
  ${CONNECTION_CHECK}`

/**
 * Planning a statement costs more than running it, so one generic plan serves all values. It may be made while a table is empty and
 * kept while it grows by thousands of rows a second. See docs/planner.md.
 */
const GENERIC_PLANS = `set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_sort = off;
  set max_parallel_workers_per_gather = 0; set jit = off`

// Statements, because PgBouncer refuses such parameters in the start-up message.

export const REQUEST_SETTINGS = `${COMMON}; ${GENERIC_PLANS};
  set statement_timeout = ${STATEMENT_TIMEOUT_MS}; set lock_timeout = ${LOCK_TIMEOUT_MS};
  set idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}; set idle_session_timeout = 0`

/** No time limits. PostgreSQL before 17 does not have all of them. */
export const SESSION_SETTINGS = `${COMMON};
  select set_config(name, '0', false) from pg_settings where name in
  ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')`

/** See migrations/functions/restores.sql. A role that may only write rows skips it: the next migration does the same. */
export const PREPARE_WRITES = `do $$ begin
    if to_regprocedure('prepare_writes()') is not null then perform prepare_writes(); end if;
  exception when insufficient_privilege then null;
  end $$`

/** Parts of pg 8.23.1 without documentation: tests of takeovers, synchronous standbys, poolers and TLS fail if they change. */
interface Internals {
  processID: number | null
  connection: EventEmitter & {
    stream: Duplex
    connect(...address: unknown[]): void
    attachListeners(stream: Duplex): void
  }
}

const internalsOf = (client: pg.ClientBase) => client as unknown as Internals

/** The value that the server or a pooler sent. */
export const processIdOf = (client: pg.ClientBase): number | null => internalsOf(client).processID

/** Closes the connection without waiting for the server. Every query on it fails with the error. */
export function abandon(client: pg.ClientBase, error: Error): void {
  internalsOf(client).connection.stream.destroy(error)
}

/** sslmode=prefer and allow: if the server responds that it has no TLS, the connection continues without. pg would end it. */
export function acceptPlainText(client: pg.ClientBase): void {
  const { connection } = internalsOf(client)
  const connect = connection.connect.bind(connection)
  connection.connect = (...address) => {
    connect(...address)
    const { stream } = connection
    const [onResponse] = stream.listeners('data')
    stream.removeAllListeners('data').once('data', (response: Buffer) => {
      if (response.toString() !== 'N') return onResponse?.call(stream, response)
      connection.attachListeners(stream)
      connection.emit('sslconnect')
    })
  }
}

/** The function of PostgreSQL that sends the warning, whose text may be translated. */
const WAIT_ROUTINE = 'SyncRepWaitForLSN'

/**
 * If an administrator cancels a commit that waits for a standby (pg_cancel_backend), PostgreSQL sends a warning and then reports success,
 * although the transaction is only on the primary's disk. The warning fails the connection, so the commit is not acknowledged.
 */
export function listenTo(client: pg.ClientBase): void {
  // Without a listener, a connection that the server closes would end the process.
  client.on('error', () => undefined)
  client.on('notice', ({ routine }) => {
    if (routine !== WAIT_ROUTINE) return
    const error = new Error('a commit did not reach a standby')
    // Queries fail before pg reads the next message, which may have arrived in the same packet.
    internalsOf(client).connection.emit('error', error)
    abandon(client, error)
  })
}
