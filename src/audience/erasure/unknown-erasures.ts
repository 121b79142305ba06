/** Compares the erasure ledger with the database. A restored backup lacks the erasures since the backup. */
import { FatalError } from '../../errors.ts'
import { int8Array, textArray, timestamptzArray } from '../../postgres/binary-array.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import {
  LedgerDamage,
  type LedgerErasure,
  listLedgerFiles,
  readLastLines,
  readLedger,
} from './ledger-files.ts'

/** A start compares the files with the newest erasures. Each process adds one or two. 100 files × 40 ms = 4 s at worst. */
const FILES_AT_START = 100
/**
 * A start compares this many lines at the end of each of these files. A restore loses the newest erasures, and lines are appended almost in
 * the order of the commits.
 */
const LINES_PER_FILE_AT_START = 1_000
/** Takes about 0.1 s. 10,000 × 149 bytes = 1.5 MB. */
const LINES_PER_STATEMENT = 10_000

/** Whether a restore, or an `erasures reapply` that began, has not been completed by `erasures reapply`. */
const selectPendingReapply = statement('select-pending-reapply')`select from pending_reapply`

export const isReapplyPending = async (database: Queryable): Promise<boolean> =>
  (await database.query(selectPendingReapply)).length > 0

/**
 * Throws a FatalError of one line if erasures have to be reapplied. An empty ledger only causes a warning, because the directory of a
 * new machine is empty. So does a damaged file, because it says nothing about the database.
 */
export async function requireLedgerErasures(
  database: Queryable,
  directory: string,
  onWarning: (message: string) => void,
): Promise<void> {
  if (await isReapplyPending(database))
    throw new FatalError(
      'The database was restored, and the erasures of ERASURE_LEDGER have not all been reapplied. Run "oa-audience erasures ' +
        'reapply" until it succeeds, then start the service again.',
    )
  if (await isOtherLedger(database, directory)) onWarning(explainOtherLedger(directory))
  const damage = new LedgerDamage()
  const unknown = await findNewestUnknown(database, directory, damage)
  if (damage.unreadable > 0)
    onWarning(`${damage.first} has lines that cannot be read. Run "oa-audience doctor".`)
  if (unknown === 0) return
  throw new FatalError(
    'The database lacks erasures of ERASURE_LEDGER, so it was restored from an older backup. Run ' +
      '"oa-audience erasures reapply", then start the service again.',
  )
}

/** The number of erasures at the ends of the newest files that the database lacks. Takes the same time for files of any length. */
export async function findNewestUnknown(
  database: Queryable,
  directory: string,
  damage: LedgerDamage,
): Promise<number> {
  let unknown = 0
  for (const path of await listNewestFiles(directory)) {
    const lines = await readLastLines(path, LINES_PER_FILE_AT_START, damage)
    unknown += (await selectUnknown(database, lines)).length
  }
  return unknown
}

/** Whether the directory has no files, although erasures were recorded: the path is wrong, a volume is not mounted, or files are lost. */
export async function isOtherLedger(database: Queryable, directory: string): Promise<boolean> {
  if ((await listLedgerFiles(directory)).length > 0) return false
  return (await database.query(selectRecorded)).length > 0
}

const explainOtherLedger = (directory: string) =>
  `ERASURE_LEDGER ${directory} is empty, but erasures were recorded in a ledger. Check the path and the volume. If the files are lost, ` +
  'run "update erased_person set in_ledger = false".'

/** Sorts by the times of the last lines, because copies of files may have other modification times. */
async function listNewestFiles(directory: string): Promise<string[]> {
  const files = []
  for (const path of await listLedgerFiles(directory)) {
    const [last] = await readLastLines(path, 1, new LedgerDamage())
    if (last !== undefined) files.push({ path, erasedAt: last.erasedAt })
  }
  files.sort((a, b) => b.erasedAt - a.erasedAt)
  return files.slice(0, FILES_AT_START).map(({ path }) => path)
}

interface Comparison {
  /** the last erasures that were read */
  batch: LedgerErasure[]
  /** those of them that the database lacks */
  unknown: LedgerErasure[]
}

/** Compares the whole ledger, a batch at a time. */
export async function* compareLedger(
  database: Queryable,
  directory: string,
  damage: LedgerDamage,
): AsyncGenerator<Comparison> {
  let batch: LedgerErasure[] = []
  for await (const erasure of readLedger(directory, damage)) {
    batch.push(erasure)
    if (batch.length < LINES_PER_STATEMENT) continue
    yield { batch, unknown: await selectUnknown(database, batch) }
    batch = []
  }
  yield { batch, unknown: await selectUnknown(database, batch) }
}

/** Returns the erasures that the database lacks. Erasures of accounts that do not exist, or are being removed, are not among them. */
async function selectUnknown(database: Queryable, erasures: LedgerErasure[]): Promise<LedgerErasure[]> {
  if (erasures.length === 0) return []
  const rows = await database.query<{ position: number }>(selectUnknownErasures, [
    int8Array(erasures.map(({ accountId }) => accountId)),
    textArray(erasures.map(({ hash }) => hash)),
    timestamptzArray(erasures.map(({ erasedAt }) => erasedAt)),
  ])
  return rows.map(({ position }) => erasures[position - 1] as LedgerErasure)
}

/** $1 bigint[]: accounts; $2 text[]: hashes in hexadecimal digits; $3 timestamptz[]: times. */
const selectUnknownErasures = statement('select-unknown-erasures')`
    select line.position::int as position
      from unnest($1::bigint[], $2::text[], $3::timestamptz[]) with ordinality as line (account_id, hash, erased_at, position)
     where exists (select from official_account a where a.id = line.account_id and a.is_being_removed is not true)
       and not exists (select from erased_person e
                        where e.channel_oa_id = line.account_id and e.person_hash = decode(line.hash, 'hex')
                          and e.erased_at >= line.erased_at)
     order by line.position`

const selectRecorded = statement('select-recorded-erasure')`select from erased_person where in_ledger limit 1`
