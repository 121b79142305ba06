/** Rows that a test starts with, as another program would load them. */
import { randomUUID } from 'node:crypto'
import type { PostgresDatabase } from '../../src/postgres/pool/postgres-database.ts'
import { type Row, unnamed } from '../../src/postgres/statement.ts'
import type { TextDatabase, TextQueryable } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from './database.ts'
import { inSession } from './sessions.ts'

/** Runs one statement in a session without time limits. A request's limit of 5 s is too short for many rows on a slow machine. */
export function load<R extends Row>(
  database: PostgresDatabase,
  text: string,
  values: unknown[] = [],
): Promise<R[]> {
  return inSession(database, (session) => session.query<R>(unnamed(text), values))
}

/**
 * Adds members with the user ids U1, U2, … in the order of their ids.
 * @param columns further columns or other user ids, as SQL expressions of the member's number `i`
 */
export async function loadMembers(
  database: PostgresDatabase,
  tenant: Tenant,
  count: number,
  columns: Record<string, string> = {},
): Promise<void> {
  const values = { channel_oa_id: '$1', organization_id: '$2', user_id: `'U' || i`, ...columns }
  await load(
    database,
    `insert into audience_member (${Object.keys(values)})
     select ${Object.values(values)} from generate_series(1, $3::int) i order by i`,
    [tenant.accountId, tenant.organizationId, count],
  )
}

/** Adds an account with members. */
export async function tenantWithMembers(
  database: TextDatabase,
  count: number,
  columns?: Record<string, string>,
): Promise<Tenant> {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, count, columns)
  return tenant
}

/** Inserts one row. Returns its id. */
export async function insertRow(
  database: TextQueryable,
  table: string,
  columns: Record<string, unknown>,
): Promise<bigint> {
  const names = Object.keys(columns)
  const [row] = await database.query<{ id: bigint }>(
    `insert into ${table} (${names}) values (${names.map((_, index) => `$${index + 1}`)}) returning id`,
    Object.values(columns),
  )
  return row?.id as bigint
}

/** What the activity log has of an object, the oldest first. */
export const activityOf = (database: PostgresDatabase, kind: string, id: unknown) =>
  load<{ action: string; actor: string; changes: Record<string, unknown> }>(
    database,
    'select action, actor, changes from activity where object_kind = $1 and object_id = $2 order by id',
    [kind, String(id)],
  )

/** Adds an event of LINE that could not be applied. Returns its id. */
export async function addFailedEvent(
  database: TextQueryable,
  { accountId }: Pick<Tenant, 'accountId'>,
  failure: string,
  payload: unknown = {},
): Promise<string> {
  const id = await insertRow(database, 'event', {
    ...{
      channel_oa_id: accountId,
      source: 'line',
      kind: 'follow',
      key: randomUUID(),
      occurred_at: new Date(),
    },
    ...{ failure, payload: JSON.stringify(payload) },
  })
  return String(id)
}

/** Every row of every table as text: the content that a stolen database reveals. */
export function readEverything(database: PostgresDatabase): Promise<string> {
  return inSession(database, async (session) => {
    const tables = await session.query<{ name: string }>(
      unnamed(`select table_name as name from information_schema.tables
                where table_schema = 'public' and table_type = 'BASE TABLE'`),
    )
    const texts: string[] = []
    for (const { name } of tables) {
      const rows = await session.query<{ text: string | null }>(
        unnamed(`select string_agg(t::text, ' ') as text from ${name} t`),
      )
      texts.push(rows[0]?.text ?? '')
    }
    return texts.join('\n')
  })
}
