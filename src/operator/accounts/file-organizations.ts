/** The organizations of a fleet file, which names them by id or name. */
import type { OrganizationId } from '../../accounts/account.ts'
import { addOrganization } from '../../accounts/provisioning.ts'
import { AppError } from '../../errors.ts'
import { type Queryable, statement } from '../../postgres/statement.ts'
import type { Actor } from '../actor.ts'
import { recordAddedOrganization } from './organizations.ts'

/** $1 ids bigint[], $2 names text[], $3 organization ids of the actor bigint[], null: all */
const selectOrganizations = statement('select-organizations-by-id-or-name')`
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
  const rows = await database.query<{ id: bigint; name: string }>(selectOrganizations, [
    ...[ids, distinct, organizationIds],
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
  await recordAddedOrganization(transaction, actor, id, name)
  return id
}
