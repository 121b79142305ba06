/** Organizations for operators, and the removal of an empty one. */

import { AppError, requireVisible } from '../errors.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor, OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import type { OrganizationId } from './account.ts'
import { addOrganization } from './provisioning.ts'

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

// The organizations of a fleet file, which names them by id or name.

/** $1 ids bigint[], $2 names text[], $3 organization ids of the actor bigint[], null: all */
const selectNamedOrganizations = statement('select-organizations-by-id-or-name')`
    select id, name from organization
     where (id = any ($1::bigint[]) or name = any ($2::text[])) and visible(id, $3)
     order by id`

interface FileOrganizations {
  /** by their text in the file; null: it will be added */
  organizations: Map<string, OrganizationId | null>
  /** what is wrong with each other text */
  refused: Map<string, string>
}

/**
 * An id takes precedence over a name that looks like one. Throws `forbidden` if the actor may not add organizations.
 * @param texts may repeat; an empty one is ignored, because the reader of the file has refused it
 */
export async function findOrganizations(
  database: Queryable,
  { organizationIds }: Actor,
  texts: string[],
  addsOrganizations: boolean,
): Promise<FileOrganizations> {
  // Others would not see the new organizations.
  if (addsOrganizations && organizationIds !== null)
    throw new AppError('forbidden', { message: 'Only an owner of all organizations can add one' })
  const distinct = [...new Set(texts)].filter((text) => text !== '')
  const ids = distinct.filter((text) => /^[1-9]\d{0,17}$/.test(text))
  const rows = await database.query<{ id: bigint; name: string }>(selectNamedOrganizations, [
    ids,
    distinct,
    organizationIds,
  ])
  const organizations = new Map<string, OrganizationId | null>()
  const refused = new Map<string, string>()
  for (const text of distinct) {
    const named = rows.filter(({ name }) => name === text)
    const match = rows.find(({ id }) => String(id) === text) ?? named[0]
    if (named.length > 1 && match === named[0])
      refused.set(text, `${named.length} organizations have this name. Write the id instead.`)
    else if (match !== undefined) organizations.set(text, match.id)
    // Digits are meant as an id, which nobody can choose.
    else if (addsOrganizations && !/^\d+$/.test(text)) organizations.set(text, null)
    else refused.set(text, 'no organization has this id or name.')
  }
  return { organizations, refused }
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
