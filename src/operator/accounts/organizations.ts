/** Organizations for operators, and the removal of an empty one. */
import type { OrganizationId } from '../../accounts/account.ts'
import { requireVisible } from '../../errors.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
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

export type OrganizationContents = { name: string; accounts: number; apiKeys: number }

/**
 * $1 organization id bigint, $2 organization ids bigint[], null: all. Keys of the organization without an account give no access.
 */
const selectOrganization = statement('select-organization-contents')`
    select name, (select count(*)::int from official_account where organization_id = $1) as accounts,
           (select count(*)::int from api_key where organization_id = $1) as "apiKeys"
      from organization where id = $1 and visible(id, $2)`

/** What a removal would delete. Throws NotVisible. */
export async function findOrganizationContents(
  database: Queryable,
  organizationIds: OrganizationIds,
  id: OrganizationId,
): Promise<OrganizationContents> {
  const [contents] = await database.query<OrganizationContents>(selectOrganization, [id, organizationIds])
  return requireVisible(contents, 'organization', id)
}

/** $1 organization id bigint. Nobody adds an account to the organization until the transaction ends. */
const lockOrganization = statement('lock-organization')`select from organization where id = $1 for update`

/** $1 organization id bigint */
const deleteKeysOfOrganization = statement('delete-keys-of-organization')`
    delete from api_key where organization_id = $1`

/** $1 organization id bigint */
const deleteOrganization = statement('delete-organization')`delete from organization where id = $1`

/** Removes an organization unless it has accounts, whose number it returns. Call it in a transaction. Throws NotVisible. */
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

export function recordAddedOrganization(
  transaction: Queryable,
  actor: Actor,
  id: OrganizationId,
  name: string,
): Promise<void> {
  const object = { kind: 'organization', id } as const
  const changes = { name: [null, name] }
  return recordActivity(transaction, actor, {
    ...{ action: 'organization.added', object, organizationId: id, changes },
  })
}
