/** The one place that sets up connections, whatever the defaults of the role or the database are. */

/** No statement of a request should take a hundredth of this. What was accepted must end before a shutdown does. */
export const STATEMENT_TIMEOUT_MS = 5_000
/**
 * For rows that somebody else holds: beyond this the request is refused, so that it cannot stall the others. A delivery that
 * only shares a flush with it waits three times as long at worst, and LINE disconnects after 2 s.
 */
const LOCK_TIMEOUT_MS = 600

/**
 * `request`: limits, and plans that do not depend on values. `session`: neither.
 * The settings are statements, because PgBouncer refuses such parameters in the start-up message.
 */
export type Purpose = 'request' | 'session'

export function connectionSettings(purpose: Purpose): string {
  switch (purpose) {
    case 'request':
      return `${COMMON}; ${GENERIC_PLANS}; ${REQUEST_LIMITS}`
    case 'session':
      return `${COMMON}; ${NO_LIMITS}`
  }
}

/** Sets a value that depends on how and for which platform the server was built. A server that refuses it keeps its own. */
const setWherePossible = (name: string, value: string) => `do $$ begin
    perform set_config('${name}', '${value}', false);
  exception when others then null;
  end $$`

/**
 * Ends a statement within a second after its client has closed the connection, such as a process that was killed. Servers that
 * refuse the setting finish the statement first.
 */
const CONNECTION_CHECK = setWherePossible('client_connection_check_interval', '1s')

/**
 * Compresses payloads beyond 2 KB, as those of support chats are, in 8 µs instead of pglz's 19, to the same size (3.2 KB of JSON).
 * Text that pglz cannot compress costs it 170 µs per 9 KB. Servers built without lz4, as the embedded one, keep pglz.
 */
const COMPRESSION = setWherePossible('default_toast_compression', 'lz4')

/** How values are written and read. Each of them changes what our statements mean or return. */
const TEXTS = `set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres'; set extra_float_digits = 1; set bytea_output = 'hex';
  set array_nulls = on; set transform_null_equals = off; set quote_all_identifiers = off`

/** A search by name would find some members of many; tags and tombstones would be missing; a view would be refused. */
const COMPLETENESS = `set gin_fuzzy_search_limit = 0; set row_security = on;
  ${setWherePossible('session_replication_role', 'origin')};
  ${setWherePossible('restrict_nonsystem_relation_kind', '')};
  ${setWherePossible('plpgsql.extra_errors', 'none')}`

/**
 * Erasures and flushes rely on each statement seeing what was committed before it, and answers rely on commits being on
 * disk. Times are written in the session's zone. Temporary tables must not shadow ours.
 */
const COMMON = `set exit_on_error = off; ${TEXTS}; set standard_conforming_strings = on; set timezone = 'UTC';
  set default_transaction_isolation = 'read committed';
  select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';
  select set_config('client_min_messages', 'warning', false) where current_setting('client_min_messages') = 'error';
  select set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), 'pg_temp'), false)
   where current_setting('search_path') !~ 'pg_temp';
  ${COMPLETENESS};
  ${COMPRESSION};
  ${CONNECTION_CHECK}`

/**
 * One plan serves all values of a statement: planning costs more than running it. Such a plan may be made while a table is
 * empty and kept while it grows by thousands of rows a second, so it must use the indexes from the beginning. Without
 * statistics, or with filters that are usually null, the planner expects few rows and would rather sort a whole account than
 * read an index in order. Sorts remain where no index has the order. No statement is large enough for parallel workers or
 * compilation.
 */
const GENERIC_PLANS = `set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_sort = off;
  set max_parallel_workers_per_gather = 0; set jit = off`

const REQUEST_LIMITS = `set statement_timeout = ${STATEMENT_TIMEOUT_MS}; set lock_timeout = ${LOCK_TIMEOUT_MS};
  set idle_in_transaction_session_timeout = ${STATEMENT_TIMEOUT_MS}; set idle_session_timeout = 0`

/** By name from pg_settings, because PostgreSQL before 17 does not have all of them. */
const NO_LIMITS = `select set_config(name, '0', false) from pg_settings where name in
  ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')`

/**
 * What a connection sends before it writes: see migrations/functions/restores.sql. A replica and a database
 * without a schema skip it. So does a role that may only write rows: the next migration by the owner of the tables does the same.
 */
export const PREPARE_WRITES = `do $$ begin
    if to_regprocedure('prepare_writes()') is not null then perform prepare_writes(); end if;
  exception when insufficient_privilege then null;
  end $$`
