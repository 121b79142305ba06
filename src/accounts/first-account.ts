import { FatalError } from '../errors.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { OrganizationId } from './account.ts'
import { describeOwner, findOwners, type Proof, proveChannel } from './channels.ts'
import { addFirstKey } from './clients.ts'
import { type AccountParts, addAccountIn } from './manage-accounts.ts'
import { addOrganizationOf } from './organizations.ts'
import {
  type AddedAccount,
  type AddedClient,
  type AddedKey,
  addClient,
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
  return database.transaction(async (transaction) => {
    const organizationId = await addOrganizationOf(transaction, actor, organizationName)
    const account = await addAccountIn(transaction, actor, organizationId, columns)
    const client = await addClient(transaction, null)
    // A client belongs to no organization.
    await recordActivity(transaction, actor, {
      action: 'client.added',
      object: { kind: 'client', id: client.id },
      organizationId: null,
    })
    const key = await addFirstKey(transaction, actor, client.id, account.id)
    return { organizationId, account, client, key, proof }
  })
}

const selectOrganization = statement('select-organization-by-name')`
    select id from organization where name = $1 order by id limit 1`

async function requireNew(
  database: Queryable,
  actor: Actor,
  organizationName: string,
  channelId: string,
): Promise<void> {
  const owner = channelId === '' ? undefined : (await findOwners(database, actor, [channelId])).get(channelId)
  if (owner !== undefined) {
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
