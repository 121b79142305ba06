/** Organizations for operators: the first one with its account, and the removal of an empty one. */
import { FatalError, requireVisible } from '../errors.ts'
import type { OrganizationId } from '../ids.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { describeOwner, findOwners, type Proof, proveChannel } from './account-fields.ts'
import { addFirstKey } from './clients.ts'
import { type AccountParts, addAccountIn } from './manage-accounts.ts'
import {
  type AddedAccount,
  type AddedClient,
  type AddedKey,
  addClient,
  addOrganization,
  type NewAccount,
} from './provisioning.ts'

type OrganizationSummary = { id: OrganizationId; name: string; accounts: number }

const selectOrganizations = statement('select-organizations')`
    select id, name,
           (select count(*)::int from official_account where organization_id = o.id) as accounts
      from organization o
     where visible(id, $1)
     order by id`

export function listOrganizations(
  database: Queryable,
  organizationIds: OrganizationIds,
): Promise<OrganizationSummary[]> {
  return database.query(selectOrganizations, [organizationIds])
}

export type OrganizationContents = { name: string; accounts: number; apiKeys: number }

/** Keys of the organization without an account give no access. */
const selectOrganization = statement('select-organization-contents')`
    select name, (select count(*)::int from official_account where organization_id = $1) as accounts,
           (select count(*)::int from api_key where organization_id = $1) as "apiKeys"
      from organization where id = $1 and visible(id, $2)`

export async function findOrganizationContents(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: OrganizationId,
): Promise<OrganizationContents> {
  const [contents] = await database.query<OrganizationContents>(selectOrganization, [id, organizationIds])
  return requireVisible(contents, 'organization', id)
}

/** Nobody adds an account to the organization until the transaction ends. */
const lockOrganization = statement('lock-organization')`select from organization where id = $1 for update`

const deleteKeysOfOrganization = statement('delete-keys-of-organization')`
    delete from api_key where organization_id = $1`

const deleteOrganization = statement('delete-organization')`delete from organization where id = $1`

/** Removes an organization unless it has accounts. Throws NotVisible. */
export async function removeOrganization(
  transaction: Queryable,
  organizationIds: OrganizationIds,
  id: OrganizationId,
): Promise<OrganizationContents> {
  await transaction.query(lockOrganization, [id])
  const contents = await findOrganizationContents(transaction, organizationIds, id)
  if (contents.accounts > 0) return contents
  await transaction.query(deleteKeysOfOrganization, [id])
  await transaction.query(deleteOrganization, [id])
  return contents
}

export async function addOrganizationOf(
  transaction: Queryable,
  actor: Actor,
  name: string,
): Promise<OrganizationId> {
  const id = await addOrganization(transaction, name)
  await recordActivity(transaction, actor, {
    action: 'organization.added',
    object: { kind: 'organization', id },
    organizationId: id,
    changes: { name: [null, name] },
  })
  return id
}

interface AddedFirstAccount {
  organizationId: OrganizationId
  account: AddedAccount
  client: AddedClient
  key: AddedKey
  proof: Proof
}

/** With a client and a key. Throws a FatalError if organization or channel exist, and `invalid_input` if LINE refuses the channel. */
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

const selectByName = statement('select-organization-by-name')`
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
  const [organization] = await database.query<{ id: bigint }>(selectByName, [organizationName])
  if (organization !== undefined) {
    throw new FatalError(
      `organization ${organization.id} ${JSON.stringify(organizationName)} already exists. Nothing was added. Run ` +
        `"oa-audience accounts add --organization ${organization.id} --name NAME" to add another account to it.`,
    )
  }
}
