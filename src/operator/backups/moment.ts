/** The facts of a manifest about the server and the time of the backup. */
import { type Queryable, statement } from '../../postgres/statement.ts'
import type { Manifest } from './manifest.ts'

/**
 * Every change that the backup lacks belongs to a transaction that is in progress now or begins later. The times in its rows are not
 * before its beginning.
 */
const selectMoment = statement('select-backup-moment')`
    select to_char(least(clock_timestamp(), (select min(xact_start) from pg_stat_activity
                                              where datname = current_database() and pid <> pg_backend_pid()
                                                and backend_type = 'client backend')),
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "backupAt",
           change_limit()::text as "changeLimit",
           current_setting('server_version_num')::int / 10000 as "postgresMajor",
           (select system_identifier::text from pg_control_system()) as "systemIdentifier",
           (select max(version) from schema_migration) as "schemaVersion"`

export type Moment = Pick<
  Manifest,
  'backupAt' | 'changeLimit' | 'postgresMajor' | 'systemIdentifier' | 'schemaVersion'
>

export async function readMoment(session: Queryable): Promise<Moment> {
  const [moment] = await session.query<Moment & Record<string, unknown>>(selectMoment)
  return moment as Moment
}
