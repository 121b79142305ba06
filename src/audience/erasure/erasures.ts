/** The erasure ledger as operators see it: its status, and erasing again after a restore. */

import type { Severity } from '../../endpoints/endpoint-health.ts'
import { FatalError } from '../../errors.ts'
import { INT64_MIN } from '../../http/path-id.ts'
import { recordActivity } from '../../operators/activity.ts'
import type { Actor } from '../../operators/actor.ts'
import type { Database } from '../../postgres/database.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { LedgerDamage, requireLedger } from './ledger-files.ts'
import { completeReapply, type Reapplied, reapplyErasures } from './reapply-erasures.ts'
import { compareLedger, isReapplyPending } from './unknown-erasures.ts'

/**
 * Repeats the erasures that a restored database lacks. The next run continues an interrupted one. Throws a FatalError after all other
 * lines are applied if a line cannot be read, because its erasure may be lost.
 */
export async function reapplyLedger(
  database: Database,
  actor: Actor,
  directory: string,
  onProgress: (reapplied: Reapplied) => void = () => undefined,
): Promise<Reapplied> {
  const damage = new LedgerDamage()
  const reapplied = await reapplyErasures(database, directory, damage, onProgress)
  await database.transaction(async (transaction) => {
    if (damage.unreadable === 0) await completeReapply(transaction)
    if (reapplied.erasures === 0) return
    await recordActivity(transaction, actor, {
      action: 'members.erased_again',
      object: { kind: 'member', id: null },
      organizationId: null,
      changes: { ...reapplied },
    })
  })
  if (damage.unreadable === 0) return reapplied
  throw new FatalError(
    `${describeDamage(damage)} The other ${reapplied.lines} lines are applied. Restore the file from a copy, or remove the lines if ` +
      'their erasures are not needed. Then run the command again.',
  )
}

type LedgerStatus = {
  /** lines of the ledger */
  ledger: number
  /** erased people in the database */
  database: number
  /** of them, those that the ledger does not have yet */
  notRecorded: number
  /** of them, those that were recorded, but are not in the files */
  lost: number
  /** erasures of the ledger that the database lacks */
  unknown: number
  /** texts in the files that are not lines */
  unreadable: number
  /** lines whose numbers are missing in the files */
  missing: number
  /** Whether `erasures reapply` has to be run before the service starts. */
  mustReapply: boolean
}

/** Reads the whole ledger and all erasures of the database. A million of each take about 200 MB of memory. */
export async function readLedgerStatus(database: Database, directory: string): Promise<LedgerStatus> {
  return (await examineFiles(database, directory)).status
}

function examineFiles(
  database: Database,
  directory: string,
): Promise<{ status: LedgerStatus; damage: LedgerDamage }> {
  return database.session(async (session) => {
    const damage = new LedgerDamage()
    // Read before the files: an erasure that is recorded meanwhile is not lost.
    const recorded = await readRecorded(session)
    let [ledger, unknown] = [0, 0]
    for await (const comparison of compareLedger(session, directory, damage)) {
      ledger += comparison.batch.length
      unknown += comparison.unknown.length
      for (const { accountId, hash, erasedAt } of comparison.batch) {
        const key = `${accountId} ${hash}`
        if (erasedAt >= (recorded.get(key) ?? Number.POSITIVE_INFINITY)) recorded.delete(key)
      }
    }
    const { unreadable, missing } = damage
    const [counts] = await session.query<Pick<LedgerStatus, 'database' | 'notRecorded'>>(selectErasureCounts)
    const { database: erased = 0, notRecorded = 0 } = counts ?? {}
    const mustReapply = unknown > 0 || (await isReapplyPending(session))
    return {
      status: {
        ledger,
        database: erased,
        notRecorded,
        lost: recorded.size,
        unknown,
        unreadable,
        missing,
        mustReapply,
      },
      damage,
    }
  })
}

type LedgerFinding = { check: string; severity: Severity; message: string }

/** For `doctor`. At least one finding. */
export async function examineLedger(database: Database, directory: string): Promise<LedgerFinding[]> {
  const check = 'erasure ledger'
  try {
    await requireLedger(directory)
    const { status, damage } = await examineFiles(database, directory)
    const findings = describeStatus(status, damage, directory)
    if (findings.length === 0) return [{ check, severity: 'ok', message: 'ERASURE_LEDGER has every erasure' }]
    return findings.map((finding) => ({ check, ...finding }))
  } catch (error) {
    if (!(error instanceof FatalError)) throw error
    return [{ check, severity: 'error', message: error.message }]
  }
}

const RECORD_AGAIN =
  'If there is no copy, have all erasures recorded again: "update erased_person set in_ledger = false".'

function describeStatus(
  { lost, unknown, notRecorded, unreadable, missing, mustReapply }: LedgerStatus,
  damage: LedgerDamage,
  directory: string,
): Array<Omit<LedgerFinding, 'check'>> {
  const findings: Array<Omit<LedgerFinding, 'check'>> = []
  const add = (severity: Severity, message: string) => findings.push({ severity, message })
  if (unknown > 0)
    add(
      'error',
      `the database lacks ${unknown} erasures of ERASURE_LEDGER. Run "oa-audience erasures reapply".`,
    )
  else if (mustReapply)
    add(
      'error',
      'the database was restored, or "erasures reapply" was interrupted. Run "oa-audience erasures reapply".',
    )
  if (unreadable > 0)
    add('error', `${describeDamage(damage)} Restore the file from a copy. ${RECORD_AGAIN} Then delete it.`)
  if (lost > 0)
    add(
      'warning',
      `ERASURE_LEDGER ${directory} lacks ${lost} erasures that were recorded. Check the path and the volume, and whether another ` +
        `machine has them in a directory of its own. Otherwise, restore the files from a copy. ${RECORD_AGAIN}`,
    )
  else if (missing > 0)
    add('warning', `the files lack ${missing} lines, but the database has every recorded erasure`)
  if (notRecorded > 0)
    add(
      'warning',
      `${notRecorded} erasures are not in ERASURE_LEDGER yet. A running service records them within a minute.`,
    )
  return findings
}

const describeDamage = ({ unreadable, first }: LedgerDamage) =>
  unreadable === 1
    ? `${first} is not a line of an erasure ledger.`
    : `${unreadable} lines of ERASURE_LEDGER cannot be read. The first is ${first}.`

/** Rows per statement. */
const PAGE_ROWS = 10_000

/** $1 bigint: account; $2 bytea: hash, both of the last row; $3 int: limit */
const selectRecordedPage = statement('select-page-of-recorded-erasures')`
    select channel_oa_id, person_hash, floor(extract(epoch from erased_at) * 1000)::bigint as ms
      from erased_person where in_ledger and (channel_oa_id, person_hash) > ($1, $2)
     order by channel_oa_id, person_hash limit $3`

/** Returns the times, in milliseconds since 1970, by account and hash. */
async function readRecorded(session: Queryable): Promise<Map<string, number>> {
  const recorded = new Map<string, number>()
  type Erased = { channel_oa_id: bigint; person_hash: Buffer; ms: bigint }
  let last: Pick<Erased, 'channel_oa_id' | 'person_hash'> = {
    channel_oa_id: INT64_MIN,
    person_hash: Buffer.alloc(0),
  }
  for (;;) {
    const values = [last.channel_oa_id, last.person_hash, PAGE_ROWS]
    const rows = await session.query<Erased>(selectRecordedPage, values)
    for (const { channel_oa_id, person_hash, ms } of rows)
      recorded.set(`${channel_oa_id} ${person_hash.toString('hex')}`, Number(ms))
    const next = rows.at(-1)
    if (next === undefined) return recorded
    last = next
  }
}

const selectErasureCounts = statement('count-erasures')`
    select count(*)::int as database, (count(*) filter (where not in_ledger))::int as "notRecorded" from erased_person`

const selectOldestUnrecorded = statement('select-age-of-oldest-unrecorded-erasure')`
    select extract(epoch from now() - erased_at)::float8 as seconds
      from erased_person where not in_ledger order by erased_at limit 1`

/** For the metrics: seconds since the oldest erasure that ERASURE_LEDGER does not have; 0: it has all. */
export async function readLedgerDelay(database: Queryable): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(selectOldestUnrecorded)
  // The erasure may have a time of another machine's clock.
  return Math.max(0, oldest?.seconds ?? 0)
}
