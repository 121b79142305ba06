/** Adds, renames and removes organizations. */
import type { OrganizationId } from '../../accounts/account.ts'
import { addOrganization as insertOrganization } from '../../accounts/provisioning.ts'
import { AppError } from '../../errors.ts'
import { transactionWithFreeIds } from '../../postgres/schema/taken-ids.ts'
import { type Queryable, statement, type Transactions } from '../../postgres/statement.ts'
import { recordActivity } from '../activity.ts'
import type { Actor, OrganizationIds } from '../actor.ts'

export type OrganizationSummary = { id: OrganizationId; name: string; accounts: number }

/** $1 organization ids bigint[], null: all */
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

/** Throws `forbidden` unless the actor sees all organizations, because it would not see the new one. */
export async function addOrganization(
  database: Transactions,
  actor: Actor,
  name: string,
): Promise<OrganizationId> {
  if (actor.organizationIds !== null)
    throw new AppError('forbidden', { message: 'Only an owner of all organizations can add one' })
  return transactionWithFreeIds(database, async (transaction) => {
    const id = await insertOrganization(transaction, name)
    await recordOrganization(transaction, actor, 'added', id, { name: [null, name] })
    return id
  })
}

/** $1 organization id bigint, $2 organization ids bigint[], null: all */
const lockForRename = statement('lock-organization-for-rename')`
    select name from organization
     where id = $1 and visible(id, $2)
       for no key update`

/** $1 organization id bigint, $2 name text */
const updateName = statement('rename-organization')`
    update organization set name = $2 where id = $1`

/** Returns false if the organization does not exist for the actor. */
export function renameOrganization(
  database: Transactions,
  actor: Actor,
  id: OrganizationId,
  name: string,
): Promise<boolean> {
  return database.transaction(async (transaction) => {
    const [stored] = await transaction.query<{ name: string }>(lockForRename, [id, actor.organizationIds])
    if (stored === undefined) return false
    if (stored.name === name) return true
    await transaction.query(updateName, [id, name])
    await recordOrganization(transaction, actor, 'updated', id, { name: [stored.name, name] })
    return true
  })
}

export type OrganizationContents = { name: string; accounts: number; apiKeys: number }

/**
 * $1 organization id bigint, $2 organization ids bigint[], null: all. Keys of the organization without an account give no access.
 */
const selectOrganization = statement('select-organization-contents')`
    select name, (select count(*)::int from official_account where organization_id = $1) as accounts,
           (select count(*)::int from api_key where organization_id = $1) as "apiKeys"
      from organization where id = $1 and visible(id, $2)`

/** $1 organization id bigint. Nobody adds an account to the organization until the transaction ends. */
const lockOrganization = statement('lock-organization')`select from organization where id = $1 for update`

/** $1 organization id bigint */
const deleteKeysOfOrganization = statement('delete-keys-of-organization')`
    delete from api_key where organization_id = $1`

/** $1 organization id bigint */
const deleteOrganization = statement('delete-organization')`delete from organization where id = $1`

/** What a removal would delete. Null if the organization does not exist for the actor. */
export async function findOrganizationContents(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: OrganizationId,
): Promise<OrganizationContents | null> {
  const [contents] = await database.query<OrganizationContents>(selectOrganization, [id, organizationIds])
  return contents ?? null
}

/**
 * Removes an organization unless it has accounts, whose number it returns. Returns null if the organization does not exist for the
 * actor.
 */
export function removeOrganization(
  database: Transactions,
  actor: Actor,
  id: OrganizationId,
): Promise<OrganizationContents | null> {
  return database.transaction(async (transaction) => {
    const contents = await deleteEmptyOrganization(transaction, actor.organizationIds, id)
    if (contents?.accounts === 0)
      await recordOrganization(transaction, actor, 'removed', id, { name: [contents.name, null] })
    return contents
  })
}

/** As removeOrganization, in a transaction and without a row of the activity log: for what `prove` adds and removes itself. */
export async function deleteEmptyOrganization(
  transaction: Queryable,
  organizationIds: OrganizationIds,
  id: OrganizationId,
): Promise<OrganizationContents | null> {
  await transaction.query(lockOrganization, [id])
  const contents = await findOrganizationContents(transaction, organizationIds, id)
  if (contents === null || contents.accounts > 0) return contents
  await transaction.query(deleteKeysOfOrganization, [id])
  await transaction.query(deleteOrganization, [id])
  return contents
}

export function recordOrganization(
  transaction: Queryable,
  actor: Actor,
  action: 'added' | 'updated' | 'removed',
  id: OrganizationId,
  changes: { name: [before: string | null, after: string | null] },
): Promise<void> {
  const object = { kind: 'organization', id } as const
  return recordActivity(transaction, actor, {
    action: `organization.${action}`,
    object,
    organizationId: id,
    changes,
  })
}
