/** The erasure ledger as operators see it: its status, and erasing again after a restore. */
import { requireLedger } from '../audience/ledger-files.ts'
import { type Reapplied, reapplyErasures } from '../audience/reapply-erasures.ts'
import {
  compareLedger,
  explainOtherLedger,
  findNewestUnknown,
  isOtherLedger,
} from '../audience/unknown-erasures.ts'
import { FatalError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { recordActivity } from './activity.ts'
import type { Actor } from './actor.ts'
import type { Severity } from './endpoints/endpoint-health.ts'

/** Repeats the erasures that a restored database lacks. The next run continues an interrupted one. */
export async function reapplyLedger(
  database: Database,
  actor: Actor,
  directory: string,
  onProgress: (reapplied: Reapplied) => void = () => undefined,
): Promise<Reapplied> {
  const reapplied = await reapplyErasures(database, directory, onProgress)
  if (reapplied.erasures > 0) {
    await database.transaction((transaction) =>
      recordActivity(transaction, actor, {
        action: 'members.erased_again',
        object: { kind: 'member', id: null },
        organizationId: null,
        changes: { ...reapplied },
      }),
    )
  }
  return reapplied
}

export type LedgerStatus = {
  /** lines of the ledger */
  ledger: number
  /** erased people in the database */
  database: number
  /** of them, those that the ledger does not have yet */
  notRecorded: number
  /** erasures of the ledger that the database lacks */
  unknown: number
}

/** Reads the whole ledger. */
export async function readLedgerStatus(database: Database, directory: string): Promise<LedgerStatus> {
  return database.session(async (session) => {
    let [ledger, unknown] = [0, 0]
    for await (const comparison of compareLedger(session, directory)) {
      ledger = comparison.lines
      unknown += comparison.unknown.length
    }
    return { ledger, ...(await countErasures(session)), unknown }
  })
}

/** For `doctor`. Compares the ends of the files, as a start does. */
export async function examineLedger(
  database: Database,
  directory: string,
): Promise<{ severity: Severity; message: string }> {
  try {
    await requireLedger(directory)
    const unknown = await database.session((session) => findNewestUnknown(session, directory))
    const isOther = await database.session((session) => isOtherLedger(session, directory))
    if (isOther) return { severity: 'warning', message: explainOtherLedger(directory) }
    const { notRecorded } = await countErasures(database)
    if (unknown > 0) {
      const message = `the database lacks ${unknown} or more erasures of ERASURE_LEDGER. Run "oa-audience erasures reapply".`
      return { severity: 'error', message }
    }
    if (notRecorded > 0) {
      const message = `${notRecorded} erasures are not in ERASURE_LEDGER yet. A running service records them within a minute.`
      return { severity: 'warning', message }
    }
    return { severity: 'ok', message: 'ERASURE_LEDGER has every erasure' }
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return { severity: 'error', message: error.message }
  }
}

const selectErasureCounts = statement('count-erasures')`
    select count(*)::int as database, (count(*) filter (where not in_ledger))::int as "notRecorded" from erased_person`

export async function countErasures(
  database: Queryable,
): Promise<Pick<LedgerStatus, 'database' | 'notRecorded'>> {
  const [counts] = await database.query<Pick<LedgerStatus, 'database' | 'notRecorded'>>(selectErasureCounts)
  return counts ?? { database: 0, notRecorded: 0 }
}

const selectOldestUnrecorded = statement('select-age-of-oldest-unrecorded-erasure')`
    select extract(epoch from now() - erased_at)::float8 as seconds
      from erased_person where not in_ledger order by erased_at limit 1`

/** For the metrics: seconds since the oldest erasure that ERASURE_LEDGER does not have; 0: it has all. */
export async function readLedgerDelay(database: Queryable): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(selectOldestUnrecorded)
  // The erasure may have a time of another machine's clock.
  return Math.max(0, oldest?.seconds ?? 0)
}
