/** Compares the erasure ledger with the database. A restored backup lacks the erasures since the backup. */
import { FatalError, type Finding, finding } from '../../errors.ts'
import { counted } from '../../observability/one-line.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import type { Database } from '../../postgres/database.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import { LedgerDamage, type LedgerErasure, readLedger, requireLedger } from './ledger-files.ts'

/** Takes about 0.1 s. 10,000 × 149 bytes = 1.5 MB. */
const LINES_PER_STATEMENT = 10_000

interface Comparison {
  /** the last erasures that were read */
  batch: LedgerErasure[]
  /** those of them that the database lacks */
  unknown: LedgerErasure[]
  /** those of them that the database has, and has not stored again with a later time */
  found: LedgerErasure[]
}

/** Compares the whole ledger, a batch at a time. Erasures of accounts that do not exist, or are being removed, are not unknown. */
export async function* compareLedger(
  database: Queryable,
  directory: string,
  damage: LedgerDamage,
): AsyncGenerator<Comparison> {
  let batch: LedgerErasure[] = []
  for await (const entry of readLedger(directory, damage)) {
    if ('hash' in entry) batch.push(entry)
    if (batch.length < LINES_PER_STATEMENT) continue
    yield compare(database, batch)
    batch = []
  }
  yield compare(database, batch)
}

async function compare(database: Queryable, batch: LedgerErasure[]): Promise<Comparison> {
  const accountIds = int8Array(batch.map(({ accountId }) => accountId))
  await database.query(skipLostAccounts, [accountIds])
  const rows = await database.query<{ isUnknown: boolean; isFound: boolean }>(compareErasures, [
    accountIds,
    textArray(batch.map(({ hash }) => hash)),
    timestamptzArray(batch.map(({ erasedAt }) => erasedAt)),
  ])
  return {
    batch,
    unknown: batch.filter((_, at) => rows[at]?.isUnknown),
    found: batch.filter((_, at) => rows[at]?.isFound),
  }
}

/** A restore may have lost an account of the ledger. Its id is not given again, because its erasures concern no other account. */
const skipLostAccounts = statement('skip-account-ids-of-ledger')`
    select raise_account_ids(max(line.id))
      from unnest($1::bigint[]) as line (id)
     where line.id > (select coalesce(pg_sequence_last_value(pg_get_serial_sequence('official_account', 'id')), 0))
       and line.id < 4611686018427387904
       and not exists (select from official_account a where a.id = line.id)
       and current_setting('transaction_read_only') = 'off'
    having count(*) > 0`

/** $1 bigint[]: accounts; $2 text[]: hashes in hexadecimal digits; $3 timestamptz[]: times. Returns a row per line. */
const compareErasures = statement('compare-erasures')`
    select (e.erased_at >= line.erased_at) is not true
             and exists (select from official_account a where a.id = line.account_id and a.is_being_removed is not true)
             as "isUnknown",
           e.in_ledger is true and date_trunc('milliseconds', e.erased_at) <= line.erased_at as "isFound"
      from unnest($1::bigint[], $2::text[], $3::timestamptz[]) with ordinality as line (account_id, hash, erased_at, position)
      left join lateral (
        select erased_at, in_ledger from erased_person
         where channel_oa_id = line.account_id and person_hash = decode(line.hash, 'hex') offset 0) e on true
     order by line.position`

/** A restore, or an `erasures reapply` that began, has not been completed by `erasures reapply`. */
const selectPendingReapply = statement('select-pending-reapply')`select from pending_reapply`

/**
 * Throws a FatalError of one line if erasures have to be reapplied. Takes a second per 100,000 lines. An empty ledger only causes a
 * warning, because the directory of a new machine is empty. So does a damaged file, because it says nothing about the database.
 */
export async function requireLedgerErasures(
  database: Queryable,
  directory: string,
  onWarning: (message: string) => void,
): Promise<void> {
  if ((await database.query(selectPendingReapply)).length > 0)
    throw new FatalError(
      'The database was restored, and the erasures of ERASURE_LEDGER have not all been reapplied. Run "oa-audience erasures ' +
        'reapply" until it succeeds, then start the service again.',
    )
  const damage = new LedgerDamage()
  let lines = 0
  for await (const { batch, unknown } of compareLedger(database, directory, damage)) {
    lines += batch.length
    if (unknown.length > 0)
      throw new FatalError(
        'The database lacks erasures of ERASURE_LEDGER, so it was restored from an older backup. Run ' +
          '"oa-audience erasures reapply", then start the service again.',
      )
  }
  if (damage.unreadable > 0) onWarning(`${describeDamage(damage)} Run "oa-audience doctor".`)
  const [counts] = lines === 0 ? await database.query<Counts>(countErasures) : []
  if (counts !== undefined && counts.recorded > 0)
    onWarning(
      `ERASURE_LEDGER ${directory} is empty, but erasures were recorded in a ledger. Check the path and the volume. ${RECORD_AGAIN}`,
    )
}

const countErasures = statement('count-erasures')`
    select (count(*) filter (where in_ledger))::int as recorded, (count(*) filter (where not in_ledger))::int as "notRecorded"
      from erased_person`

type Counts = { recorded: number; notRecorded: number }

/** Reads the whole ledger: 200 MB of memory per million. `lost` erasures are not in the files, and `unknown` ones not in the database. */
export function readLedgerStatus(database: Database, directory: string, damage = new LedgerDamage()) {
  return database.session(async (session) => {
    // Counted before the files are read: an erasure that is recorded meanwhile is not lost.
    const [counts] = await session.query<Counts>(countErasures)
    const { recorded = 0, notRecorded = 0 } = counts ?? {}
    const found = new Set<string>()
    let [ledger, unknown] = [0, 0]
    for await (const comparison of compareLedger(session, directory, damage)) {
      ledger += comparison.batch.length
      unknown += comparison.unknown.length
      for (const { accountId, hash } of comparison.found) found.add(`${accountId} ${hash}`)
    }
    const isReapplyPending = (await session.query(selectPendingReapply)).length > 0
    return {
      ledger,
      database: recorded + notRecorded,
      notRecorded,
      lost: Math.max(0, recorded - found.size),
      unknown,
      unreadable: damage.unreadable,
      mustReapply: unknown > 0 || isReapplyPending,
    }
  })
}

export async function examineLedger(database: Database, directory: string): Promise<Finding[]> {
  const check = 'erasure ledger'
  const findings: Finding[] = []
  const error = (message: string) => findings.push(finding.error(check, message))
  const warn = (message: string) => findings.push(finding.warning(check, message))
  try {
    await requireLedger(directory)
    const damage = new LedgerDamage()
    const { lost, unknown, notRecorded, mustReapply } = await readLedgerStatus(database, directory, damage)
    const lacks =
      unknown > 0 ? `the database lacks ${counted(unknown, 'erasure')} of ERASURE_LEDGER` : RESTORED
    if (mustReapply) error(`${lacks}. Run "oa-audience erasures reapply".`)
    if (damage.unreadable > 0)
      error(`${describeDamage(damage)} Restore the file from a copy. ${RECORD_AGAIN} Then delete it.`)
    if (lost > 0)
      warn(
        `ERASURE_LEDGER ${directory} lacks ${counted(lost, 'recorded erasure')}. Check the path and the volume, and whether another ` +
          `machine has them in a directory of its own. Otherwise, restore the files from a copy. ${RECORD_AGAIN}`,
      )
    if (notRecorded > 0)
      warn(
        `${counted(notRecorded, 'erasure')} not in ERASURE_LEDGER yet. A running service records them within a minute.`,
      )
  } catch (failure) {
    if (!(failure instanceof FatalError)) throw failure
    error(failure.message)
  }
  return findings.length > 0 ? findings : [finding.ok(check, 'ERASURE_LEDGER has every erasure')]
}

const RESTORED = 'the database was restored, or "erasures reapply" was interrupted'

const RECORD_AGAIN =
  'If there is no copy, have all erasures recorded again: "update erased_person set in_ledger = false".'

export const describeDamage = ({ unreadable, first }: LedgerDamage) =>
  unreadable === 1
    ? `${first} is not a line of an erasure ledger.`
    : `${unreadable} lines of ERASURE_LEDGER cannot be read. The first is ${first}.`

const selectOldestUnrecorded = statement('select-age-of-oldest-unrecorded-erasure')`
    select extract(epoch from now() - erased_at)::float8 as seconds
      from erased_person where not in_ledger order by erased_at limit 1`

/** For the metrics: seconds since the oldest erasure that ERASURE_LEDGER does not have; 0: it has all. */
export async function readLedgerDelay(database: Queryable): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(selectOldestUnrecorded)
  // The erasure may have a time of another machine's clock.
  return Math.max(0, oldest?.seconds ?? 0)
}
