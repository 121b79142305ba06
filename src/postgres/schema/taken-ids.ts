/** Other programs may insert rows with explicit ids, so the next generated id may be taken. */
import { violatedConstraint } from '../faults.ts'
import {
  type Queryable,
  type Row,
  type SendPipeline,
  type Statement,
  statement,
  type Transactions,
} from '../statement.ts'

/** Moves a table's sequence past the stored ids, never back. Ids above 2^62 are ignored, because no sequence counts that far. */
const skipTaken = (table: string) => statement(`skip-taken-ids-${table.replace('_', '-')}`)`
      select setval(pg_get_serial_sequence('${table}', 'id'),
                    greatest(max(id), nextval(pg_get_serial_sequence('${table}', 'id'))))
        from ${table} where id < 4611686018427387904`

const SKIP_TAKEN = {
  organization: skipTaken('organization'),
  official_account: skipTaken('official_account'),
  api_client: skipTaken('api_client'),
  api_key: skipTaken('api_key'),
  endpoint: skipTaken('endpoint'),
  segment: skipTaken('segment'),
}

type ProvisionedTable = keyof typeof SKIP_TAKEN

/** $1 text: table */
const selectNextId = statement('select-next-id')`select nextval(pg_get_serial_sequence($1, 'id')) as id`

/**
 * Inserts a row with a generated id. If the id is taken, the sequence moves past the stored ids and the insert is retried. Inside a
 * transaction, which the failure aborts, this throws the violation for transactionWithFreeIds.
 * @param valuesOf returns the parameters of `insert`; secrets are encrypted for the id of their row
 */
export async function insertWithFreeId<R extends Row>(
  database: Queryable,
  table: ProvisionedTable,
  insert: Statement,
  valuesOf: (id: bigint) => unknown[],
): Promise<R[]> {
  const insertNext = async () => {
    const [next] = await database.query<{ id: bigint }>(selectNextId, [table])
    return database.query<R>(insert, valuesOf((next as { id: bigint }).id))
  }
  try {
    return await insertNext()
  } catch (error) {
    if (tableOfTakenId(error) !== table) throw error
    const isMoved = await database.query(SKIP_TAKEN[table]).then(
      () => true,
      () => false,
    )
    if (!isMoved) throw error
    return insertNext()
  }
}

/** Runs a transaction that inserts rows with generated ids. Each table may abort it once. `work` may wrap the violation as a cause. */
export async function transactionWithFreeIds<T>(
  database: Transactions,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  const moved = new Set<ProvisionedTable>()
  for (;;) {
    try {
      return await database.transaction(work)
    } catch (error) {
      const table = tableOfTakenId(error)
      if (table === null || moved.has(table)) throw error
      await database.query(SKIP_TAKEN[table])
      moved.add(table)
    }
  }
}

function tableOfTakenId(error: unknown): ProvisionedTable | null {
  const violated = violatedConstraint(error) ?? violatedConstraint((error as Error).cause)
  const table = violated?.replace(/_pkey$/, '')
  return table !== undefined && Object.hasOwn(SKIP_TAKEN, table) ? (table as ProvisionedTable) : null
}

/** The constraint that a new member violates if its id is taken. */
export const MEMBER_ID_TAKEN = 'audience_member_pkey'

/** Advances generated ids beyond those of the accounts' members. */
export async function skipTakenMemberIds(send: SendPipeline, accountIds: bigint[]): Promise<void> {
  await send([{ statement: skipTakenMembers, values: [accountIds] }])
}

/**
 * $1 bigint[]: accounts. Ids are unique per account, so other accounts do not matter. Reads one row of each account. Without
 * statistics, max() over all of them would read every member.
 */
const skipTakenMembers = statement('skip-taken-member-ids')`
    select skip_member_ids(max(last.id))
      from unnest($1::bigint[]) as account (id)
     cross join lateral (select m.id from audience_member m
                          where m.channel_oa_id = account.id and m.id < 4611686018427387904
                          order by m.id desc limit 1) last`
