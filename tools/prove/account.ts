/** The account of one `oa-audience prove` run: added before, compared with the load afterwards, removed at the end. */
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import { ulidKey } from '../../src/intake/event-key.ts'
import type { Database } from '../../src/postgres/database.ts'
import type { Queryable } from '../../src/postgres/statement.ts'
import { randomAccount } from '../simulator/state.ts'
import type { Load } from './load.ts'

export interface ProveAccount {
  id: bigint
  organizationId: bigint
  channelSecret: string
  botUserId: string
}

export interface Discrepancies {
  /** events that were acknowledged but are not stored or had no effect */
  missing: number
  /** events that took effect more than once */
  twice: number
  /** events that are stored but were never acknowledged */
  unknown: number
}

export async function addProveAccount(database: Database): Promise<ProveAccount> {
  const { channelSecret, botUserId } = randomAccount('oa-audience prove')
  const organizationId = await addOrganization(database, 'oa-audience prove')
  const { id } = await addAccount(database, organizationId, {
    name: 'oa-audience prove',
    channel_secret: channelSecret,
    bot_user_id: botUserId,
  })
  return { id, organizationId, channelSecret, botUserId }
}

/** Compares what was acknowledged with what is stored. */
export function findDiscrepancies(
  database: Database,
  { id }: ProveAccount,
  load: Load,
): Promise<Discrepancies> {
  return database.session(async (session) => {
    const keys = await compareKeys(session, id, load.eventIds)
    const counts = await compareCounts(session, id, load.expected)
    return {
      missing: Math.max(keys.missing, counts.missing),
      twice: counts.twice,
      unknown: keys.unknown,
    }
  })
}

/**
 * $1 account id bigint
 * $2 keys of the acknowledged events text[], each a uuid in hexadecimal digits
 */
const selectKeyDifferences = `
  with sent as (
    select unnest($2::text[])::uuid as key
  )
  select (select count(*)::int from sent left join event_key k on k.channel_oa_id = $1 and k.key = sent.key
           where k.key is null) as missing,
         (select count(*)::int from event_key k left join sent using (key)
           where k.channel_oa_id = $1 and sent.key is null) as unknown`

async function compareKeys(session: Queryable, id: bigint, eventIds: string[]) {
  const keys = eventIds.map((eventId) => ulidKey(eventId)?.toString('hex'))
  const [stored] = await session.query<{ missing: number; unknown: number }>(selectKeyDifferences, [id, keys])
  return { missing: stored?.missing ?? 0, unknown: stored?.unknown ?? 0 }
}

/** $1 account id bigint */
const selectEventCounts = `
  select user_id, event_count from audience_member where channel_oa_id = $1`

async function compareCounts(session: Queryable, id: bigint, expected: Map<string, number>) {
  const members = await session.query<{ user_id: string; event_count: bigint }>(selectEventCounts, [id])
  const stored = new Map(members.map(({ user_id, event_count }) => [user_id, Number(event_count)]))
  let [missing, twice] = [0, 0]
  for (const userId of new Set([...expected.keys(), ...stored.keys()])) {
    const surplus = (stored.get(userId) ?? 0) - (expected.get(userId) ?? 0)
    if (surplus > 0) twice += surplus
    else missing -= surplus
  }
  return { missing, twice }
}

/** Children before parents; $1 account id bigint. */
const DELETE_ACCOUNT_DATA = [
  'delete from event where channel_oa_id = $1',
  'delete from event_key where channel_oa_id = $1',
  'delete from audience_member where channel_oa_id = $1',
  'delete from erased_member where channel_oa_id = $1',
  'delete from official_account where id = $1',
]

/** $1 organization id bigint */
const deleteOrganization = 'delete from organization where id = $1'

export async function removeProveAccount(
  database: Database,
  { id, organizationId }: ProveAccount,
): Promise<void> {
  await database.session(async (session) => {
    for (const statement of DELETE_ACCOUNT_DATA) await session.query(statement, [id])
    await session.query(deleteOrganization, [organizationId])
  })
}
