/**
 * The account of one `oa-audience prove` run: added before, compared with the load afterwards, removed at the end. A later run
 * removes what a killed one has left. It recognises such an account by its names and by the beginning of its `oa_hash`, which
 * also has the number of the run.
 */
import { randomBytes, randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { removeOrganization as removeEmpty } from '../../src/accounts/organizations.ts'
import { addAccount, addOrganization } from '../../src/accounts/provisioning.ts'
import { NotVisible } from '../../src/errors.ts'
import { ulidKey } from '../../src/intake/event-fields.ts'
import type { Database } from '../../src/postgres/database.ts'
import { type Queryable, statement } from '../../src/postgres/statement.ts'
import { removeAccount } from '../remove-account.ts'
import { randomAccount } from '../simulator/state.ts'
import type { Load } from './load.ts'

/** The name of the account and of its organization. */
const NAME = 'oa-audience prove'
/** First key of the advisory lock that a run holds. The second key is the number of the run. */
const RUN_LOCK = 730_202
const RUN_MAX = 1_000_000_000
/** How soon a run notices that the connection with its lock is lost. */
const LOCK_CHECK_MS = 500
const LOCK_RETRY_MS = 100

export interface ProveAccount {
  id: bigint
  organizationId: bigint
  channelSecret: string
  botUserId: string
  /** identifies the run to other runs */
  run: number
}

export interface Discrepancies {
  /** events that were acknowledged but are not stored or had no effect */
  missing: number
  /** events that took effect more than once */
  twice: number
  /** events that are stored but were never acknowledged */
  unknown: number
}

/** In one transaction, so that there is no organization without its account. */
export function addProveAccount(database: Database, run: number): Promise<ProveAccount> {
  const { channelSecret, botUserId } = randomAccount(NAME)
  return database.transaction(async (transaction) => {
    const organizationId = await addOrganization(transaction, NAME)
    const { id } = await addAccount(transaction, organizationId, {
      name: NAME,
      channel_secret: channelSecret,
      bot_user_id: botUserId,
      oa_hash: `prove-${run}-${randomBytes(24).toString('hex')}`,
    })
    return { id, organizationId, channelSecret, botUserId, run }
  })
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
const selectKeyDifferences = statement('prove-select-key-differences')`
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
const selectEventCounts = statement('prove-select-event-counts')`
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

interface StoredAccount {
  id: bigint
  organizationId: bigint
  run: number
}

/** $1 name text; $2 account id bigint, null: all */
const selectProveAccounts = statement('prove-select-accounts')`
    select a.id, a.organization_id as "organizationId", split_part(a.oa_hash, '-', 2)::int as run
      from official_account a join organization o on o.id = a.organization_id
     where a.name = $1 and o.name = $1 and a.oa_hash ~ '^prove-\\d{1,9}-' and ($2::bigint is null or a.id = $2)`

/** $1 name text. Organizations whose accounts were removed, but not they. */
const selectEmptyOrganizations = statement('prove-select-empty-organizations')`
    select id from organization o
     where name = $1 and not exists (select from official_account a where a.organization_id = o.id)`

/** $1 int: RUN_LOCK; $2 int: run */
const tryLockRun = statement('prove-try-lock-run')`select pg_try_advisory_lock($1, $2) as "isOurs"`

/** $1 int: RUN_LOCK; $2 int: run */
const lockRun = statement('prove-lock-run')`select pg_advisory_lock($1, $2)`

const ping = statement('prove-ping')`select 1`

export async function removeProveAccount(database: Database, { id }: { id: bigint }): Promise<void> {
  const [account] = await database.query<StoredAccount & Record<string, unknown>>(selectProveAccounts, [
    NAME,
    id,
  ])
  if (account !== undefined) await remove(database, account)
}

async function remove(database: Database, { id, organizationId }: StoredAccount): Promise<void> {
  await removeAccount(database, id)
  await database.query(forgetRevocation, [id])
  await removeOrganization(database, organizationId)
}

/** $1 account id bigint. A restored backup has no reason to report that this account was removed. */
const forgetRevocation = statement('prove-forget-revocation')`
    delete from unrecorded_revocation where kind = 'account' and object_id = $1`

/** $1 organization id bigint. Only this run has used the random addresses of its account. */
const deleteRetired = statement('prove-delete-retired-addresses')`
    delete from retired_address where organization_id = $1`

function removeOrganization(database: Database, id: bigint): Promise<void> {
  return database.transaction(async (transaction) => {
    await removeEmpty(transaction, null, id).catch((error) => {
      // Another run was faster.
      if (!(error instanceof NotVisible)) throw error
    })
    await transaction.query(deleteRetired, [id])
  })
}

/** Removes the accounts of earlier runs, unless a run that uses them is alive. */
export async function removeLeftAccounts(database: Database, ownId: bigint): Promise<void> {
  const accounts = await database.query<StoredAccount & Record<string, unknown>>(selectProveAccounts, [
    NAME,
    null,
  ])
  for (const account of accounts) {
    if (account.id === ownId) continue
    await database.session(async (session) => {
      const [lock] = await session.query<{ isOurs: boolean }>(tryLockRun, [RUN_LOCK, account.run])
      if (lock?.isOurs) await remove(database, account)
    })
  }
  for (const { id } of await database.query<{ id: bigint }>(selectEmptyOrganizations, [NAME])) {
    await removeOrganization(database, id)
  }
}

/**
 * Keeps other runs from removing the account of this one while `work` runs. After a failover, the lock is taken again on the new
 * primary.
 */
export async function whileLocked<T>(database: Database, work: (run: number) => Promise<T>): Promise<T> {
  const run = randomInt(RUN_MAX)
  const ended = new AbortController()
  const { signal } = ended
  let isHeld = () => {}
  const held = new Promise<void>((resolve) => {
    isHeld = resolve
  })
  const hold = async () => {
    while (!signal.aborted) {
      await database
        .session(async (session) => {
          await session.query(lockRun, [RUN_LOCK, run])
          isHeld()
          while (!signal.aborted) {
            await sleep(LOCK_CHECK_MS, undefined, { signal }).catch(() => undefined)
            await session.query(ping)
          }
        })
        .catch(() => sleep(LOCK_RETRY_MS))
    }
  }
  const holding = hold()
  await held
  try {
    return await work(run)
  } finally {
    ended.abort()
    await holding
  }
}
