/** Completes a restored database before any service uses it. */
import { FatalError } from '../../errors.ts'
import type { Database } from '../../postgres/database.ts'
import { begin, commit, type Queryable, statement } from '../../postgres/statement.ts'
import { recordActivity } from '../activity.ts'
import { commandActor } from '../actor.ts'
import type { Manifest } from './manifest.ts'

/** $1 timestamptz: all lost changes were made at or after it; $2 bigint: limit of the change numbers in the backup */
const recordRestoreOf = statement('record-restore')`
    select to_char(record_restore($1, $2), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "restoredAt"`

const dropMarker = statement('drop-restore-marker')`drop table if exists unfinished_restore`

const selectMembersEndpoints = statement('select-members-endpoints')`
    select id from endpoint where format = 'members' order by id`

export interface Restored {
  restoredAt: string
  /** endpoints whose receivers may have states that the restored database lacks */
  membersEndpoints: bigint[]
}

/** Throws a FatalError if this machine's clock is before the backup, because clients may already have read these times. */
export function requireLaterClock({ backupAt }: Manifest): void {
  if (Date.now() >= Date.parse(backupAt)) return
  throw new FatalError(
    `the backup is of ${backupAt}, which is in the future. Set the clock of this machine, then try again.`,
  )
}

/** Uses one transaction, so a service finds either a complete restore or the marker that refuses it. */
export function recordRestore(
  database: Database,
  { backupAt, changeLimit, ...manifest }: Manifest,
): Promise<Restored> {
  return database.session(async (session: Queryable) => {
    await session.query(begin)
    const [row] = await session.query<{ restoredAt: string }>(recordRestoreOf, [backupAt, changeLimit])
    const restoredAt = row?.restoredAt ?? ''
    await recordActivity(session, commandActor(), {
      action: 'database.restored',
      object: { kind: 'database', id: null },
      organizationId: null,
      changes: { backupAt, restoredAt, version: manifest.version },
    })
    await session.query(dropMarker)
    await session.query(commit)
    const endpoints = await session.query<{ id: bigint }>(selectMembersEndpoints)
    return { restoredAt, membersEndpoints: endpoints.map(({ id }) => id) }
  })
}
