/** Refuses a database in which `oa-audience restore` was interrupted while it copied a dump. */
import { FatalError } from '../../errors.ts'
import type { Database } from '../database.ts'
import { statement } from '../statement.ts'

/** The restore creates the table first, and drops it in the transaction that completes the restore. */
const selectMarker = statement('select-restore-marker')`
    select to_regclass('unfinished_restore') is not null as is_unfinished`

export async function refuseUnfinishedRestore(database: Database): Promise<void> {
  const [row] = await database.session((session) => session.query<{ is_unfinished: boolean }>(selectMarker))
  if (row?.is_unfinished !== true) return
  throw new FatalError(
    'a restore into this database was interrupted or still runs. If none runs, create another empty database, and run ' +
      '"oa-audience restore" again.',
  )
}
