/** Other programs may insert rows with explicit ids, so the next generated id may be taken. */
import { type Queryable, type Row, type SendPipeline, type Statement, statement } from '../statement.ts'

/** If the next id is taken, the sequence moves past all stored ids. No sequence counts beyond 2^62. */
const nextFreeId = (table: string) => statement(`next-free-id-${table.replace('_', '-')}`)`
    with next as (select nextval(pg_get_serial_sequence('${table}', 'id')) as id)
    select case when exists (select from ${table} where id = next.id)
                then setval(pg_get_serial_sequence('${table}', 'id'),
                            greatest(next.id, (select max(id) from ${table} where id < 4611686018427387904)) + 1)
                else next.id end as id
      from next`

const NEXT_FREE_ID = {
  organization: nextFreeId('organization'),
  official_account: nextFreeId('official_account'),
  api_client: nextFreeId('api_client'),
  api_key: nextFreeId('api_key'),
  endpoint: nextFreeId('endpoint'),
  segment: nextFreeId('segment'),
}

/** @param valuesOf returns the parameters of `insert`; secrets are encrypted for the id of their row */
export async function insertWithFreeId<R extends Row = { id: bigint }>(
  database: Queryable,
  table: keyof typeof NEXT_FREE_ID,
  insert: Statement,
  valuesOf: (id: bigint) => unknown[],
): Promise<R[]> {
  const [next] = await database.query<{ id: bigint }>(NEXT_FREE_ID[table])
  return database.query<R>(insert, valuesOf((next as { id: bigint }).id))
}

/** The constraint that a new member violates if its id is taken. */
export const MEMBER_ID_TAKEN = 'audience_member_pkey'

export async function skipTakenMemberIds(send: SendPipeline, accountIds: bigint[]): Promise<void> {
  await send([{ statement: skipTakenMembers, values: [accountIds] }])
}

/** $1 bigint[]: accounts. Reads one row of each. Without statistics, max() over all of them would read every member. */
const skipTakenMembers = statement('skip-taken-member-ids')`
    select skip_member_ids(max(last.id))
      from unnest($1::bigint[]) as account (id)
     cross join lateral (select m.id from audience_member m
                          where m.channel_oa_id = account.id and m.id < 4611686018427387904
                          order by m.id desc limit 1) last`
