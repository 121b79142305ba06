/** Completes a restored database before any service uses it. */
import { LedgerDamage } from '../../audience/erasure/ledger-files.ts'
import { FatalError } from '../../errors.ts'
import { recordActivity } from '../../operators/activity.ts'
import { commandActor } from '../../operators/actor.ts'
import type { Database } from '../../postgres/database.ts'
import { begin, commit, type Queryable, statement } from '../../postgres/statement.ts'
import type { Manifest } from './manifest.ts'
import { listRevived, type Revived } from './revived.ts'

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
  revived: Revived[] | null
  /** number of texts in the ledger that are not lines */
  unreadable: number
}

/** Throws a FatalError if this machine's clock is before the backup, because clients may already have read these times. */
export function requireLaterClock({ backupAt }: Manifest): void {
  if (Date.now() >= Date.parse(backupAt)) return
  throw new FatalError(
    `the backup is of ${backupAt}, which is in the future. Set the clock of this machine, then try again.`,
  )
}

/**
 * Uses one transaction, so a service finds either a complete restore or the marker that refuses it.
 * @param ledger ERASURE_LEDGER; null: it is not set
 */
export function recordRestore(
  database: Database,
  { backupAt, changeLimit, ...manifest }: Manifest,
  ledger: string | null,
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
    const damage = new LedgerDamage()
    const revived = ledger === null ? null : await listRevived(session, ledger, backupAt, damage)
    await session.query(dropMarker)
    await session.query(commit)
    const endpoints = await session.query<{ id: bigint }>(selectMembersEndpoints)
    const membersEndpoints = endpoints.map(({ id }) => id)
    return { restoredAt, membersEndpoints, revived, unreadable: damage.unreadable }
  })
}
