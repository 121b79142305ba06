import { FatalError } from '../errors.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { SETUP_LOCK, takeLock } from '../postgres/locks.ts'
import { transactionWithFreeIds } from '../postgres/schema/taken-ids.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { OrganizationId } from './account.ts'
import { describeOwner, findOwners, type Proof, proveChannel } from './channels.ts'
import { type AccountParts, addAccountIn } from './manage-accounts.ts'
import { recordAddedOrganization } from './organizations.ts'
import {
  type AddedAccount,
  type AddedClient,
  type AddedKey,
  addClient,
  addKey,
  addOrganization,
  type NewAccount,
} from './provisioning.ts'

export interface AddedFirstAccount {
  organizationId: OrganizationId
  account: AddedAccount
  client: AddedClient
  key: AddedKey
  proof: Proof
}

/**
 * Adds an organization with one account, and a client with a key for it, in one transaction. Throws a FatalError if the
 * organization or the channel already exists, and `invalid_input` if LINE refuses the channel id and secret.
 */
export async function addFirstAccount(
  { database, lineApi }: AccountParts,
  actor: Actor,
  organizationName: string,
  columns: NewAccount,
): Promise<AddedFirstAccount> {
  const channelId = columns.channel_id ?? ''
  await requireNew(database, actor, organizationName, channelId)
  const proof = await proveChannel(lineApi, columns)
  return transactionWithFreeIds(database, async (transaction) => {
    await takeLock(transaction, SETUP_LOCK)
    await requireNew(transaction, actor, organizationName, channelId)
    const organizationId = await addOrganization(transaction, organizationName)
    const name: [null, string] = [null, organizationName]
    await recordAddedOrganization(transaction, actor, organizationId, name[1])
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
    return { organizationId, account, client, key, proof }
  })
}

/** $1 name text */
const selectOrganization = statement('select-organization-by-name')`
    select id from organization where name = $1 order by id limit 1`

async function requireNew(
  database: Queryable,
  actor: Actor,
  organizationName: string,
  channelId: string,
): Promise<void> {
  const owner = (await findOwners(database, actor, [channelId])).get(channelId)
  if (owner !== undefined && channelId !== '') {
    const { id } = owner
    throw new FatalError(
      `${describeOwner(owner)} Nothing was added. Run "oa-audience accounts show ${id}" to see its addresses, or ` +
        `"oa-audience keys add --client ID --account ${id}" for another key.`,
    )
  }
  const [organization] = await database.query<{ id: bigint }>(selectOrganization, [organizationName])
  if (organization !== undefined) {
    throw new FatalError(
      `organization ${organization.id} ${JSON.stringify(organizationName)} already exists. Nothing was added. Run ` +
        `"oa-audience accounts add --organization ${organization.id} --name NAME" to add another account to it.`,
    )
  }
}
