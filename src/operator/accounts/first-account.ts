import type { OrganizationId } from '../../accounts/account.ts'
import {
  type AddedAccount,
  type AddedClient,
  type AddedKey,
  addClient,
  addKey,
  addOrganization,
  type NewAccount,
} from '../../accounts/provisioning.ts'
import { FatalError } from '../../errors.ts'
import { transactionWithFreeIds } from '../../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { recordActivity } from '../activity.ts'
import type { Actor } from '../actor.ts'
import { addAccountIn } from './manage-accounts.ts'
import { recordOrganization } from './organizations.ts'

/** Advisory lock (any fixed number) that serializes runs. */
const SETUP_LOCK = 730_203

export interface AddedFirstAccount {
  organizationId: OrganizationId
  account: AddedAccount
  client: AddedClient
  key: AddedKey
}

/**
 * Adds an organization with one account, and a client with a key for it, in one transaction. Throws a FatalError if the
 * organization or the channel already exists.
 */
export function addFirstAccount(
  database: Transactions,
  actor: Actor,
  organizationName: string,
  columns: NewAccount,
): Promise<AddedFirstAccount> {
  return transactionWithFreeIds(database, async (transaction) => {
    await transaction.query(lockOtherRuns, [SETUP_LOCK])
    await requireNew(transaction, organizationName, columns.channel_id ?? null)
    const organizationId = await addOrganization(transaction, organizationName)
    const name: [null, string] = [null, organizationName]
    await recordOrganization(transaction, actor, 'added', organizationId, { name })
    const account = await addAccountIn(transaction, actor, organizationId, columns)
    const client = await addClient(transaction, null)
    const key = await addKey(transaction, client.id, account.id)
    if (key === null) throw new Error('the insert returned no row')
    // A client belongs to no organization.
    await recordActivity(transaction, actor, {
      action: 'client.added',
      object: { kind: 'client', id: client.id },
      organizationId: null,
    })
    await recordActivity(transaction, actor, {
      action: 'key.added',
      object: { kind: 'key', id: key.id },
      organizationId,
      accountId: account.id,
    })
    return { organizationId, account, client, key }
  })
}

/** $1 bigint: SETUP_LOCK */
const lockOtherRuns = statement('lock-setup-runs')`select pg_advisory_xact_lock($1)`

/** $1 channel id text */
const selectChannel = statement('select-account-by-channel')`
    select a.id, a.name, o.id as "organizationId", o.name as "organizationName"
      from official_account a join organization o on o.id = a.organization_id
     where a.channel_id = $1
     order by a.id limit 1`

/** $1 name text */
const selectOrganization = statement('select-organization-by-name')`
    select id from organization where name = $1 order by id limit 1`

async function requireNew(
  database: Queryable,
  organizationName: string,
  channelId: string | null,
): Promise<void> {
  type Channel = { id: bigint; name: string; organizationId: bigint; organizationName: string }
  const [channel] = await database.query<Channel>(selectChannel, [channelId])
  if (channel !== undefined) {
    const { id, name, organizationId, organizationName } = channel
    throw new FatalError(
      `channel ${channelId} is already account ${id} ${quoted(name)} of organization ${organizationId} ` +
        `${quoted(organizationName)}. Nothing was added. Run "oa-audience accounts show ${id}" to see its addresses, or ` +
        `"oa-audience keys add --client ID --account ${id}" for another key.`,
    )
  }
  const [organization] = await database.query<{ id: bigint }>(selectOrganization, [organizationName])
  if (organization !== undefined) {
    throw new FatalError(
      `organization ${organization.id} ${quoted(organizationName)} already exists. Nothing was added. Run ` +
        `"oa-audience accounts add --organization ${organization.id} --name NAME" to add another account to it.`,
    )
  }
}

const quoted = (name: string) => JSON.stringify(name)
