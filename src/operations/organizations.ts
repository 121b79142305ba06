/** Organizations, which own official accounts. */
import {
  findOrganizationContents,
  listOrganizations,
  type OrganizationContents,
  removeOrganization,
} from '../accounts/organizations.ts'
import { addOrganization } from '../accounts/provisioning.ts'
import { AppError, requireVisible } from '../errors.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import { statement } from '../postgres/statement.ts'
import { type Noun, operationsOf, type Target } from './operation.ts'

type Organization = { id: bigint; organizationId: bigint; name: string }

const lockOrganization = statement('lock-organization-for-rename')`
    select name from organization
     where id = $1 and visible(id, $2)
       for no key update`

const updateName = statement('rename-organization')`
    update organization set name = $2 where id = $1`

const ORGANIZATION: Noun<Organization> = {
  kind: 'organization',
  word: 'organization',
  plural: 'organizations',
  find: async (database, { organizationIds }, id) => {
    const [locked] = await database.query<{ name: string }>(lockOrganization, [id, organizationIds])
    return { ...requireVisible(locked, 'organization', id), id, organizationId: id }
  },
}
const { list, add, change } = operationsOf(ORGANIZATION)

/** A read takes no lock. */
const SHOWN: Noun<Target & { contents: OrganizationContents }> = {
  ...ORGANIZATION,
  find: async (database, { organizationIds }, id) => ({
    id,
    organizationId: id,
    contents: await findOrganizationContents(database, organizationIds, id),
  }),
}
const { read } = operationsOf(SHOWN)

const NAME = { name: StorableText({ minLength: 1, maxLength: 256, description: 'display name' }) }

const trimmed = (name: string): string =>
  name.trim() === '' ? refuseInput('name', 'must not be empty') : name.trim()

export const ORGANIZATIONS = {
  list: list({
    name: 'organization.list',
    does: 'list organizations',
    help: 'list all organizations',
    isWhole: true,
    run: ({ database, actor }) => listOrganizations(database, actor.organizationIds),
  }),

  add: add({
    name: 'organization.add',
    role: 'owner',
    does: 'add an organization',
    help: 'add an organization',
    records: 'organization.added',
    input: NAME,
    run: async ({ database, actor, input }) => {
      // Others would not see the new one.
      if (actor.organizationIds !== null)
        throw new AppError('forbidden', { message: 'Only an owner of all organizations can add one' })
      const name = trimmed(input.name)
      const id = await addOrganization(database, name)
      return { result: { id }, target: { id, organizationId: id }, changes: { name: [null, name] } }
    },
  }),

  rename: change({
    name: 'organization.rename',
    role: 'owner',
    does: 'rename an organization',
    help: 'rename an organization',
    records: 'organization.updated',
    input: NAME,
    run: async ({ database, target, input }) => {
      const name = trimmed(input.name)
      if (name === target.name) return { result: { name }, changes: null }
      await database.query(updateName, [target.id, name])
      return { result: { name }, changes: { name: [target.name, name] } }
    },
  }),

  contents: read({
    name: 'organization.contents',
    role: 'owner',
    does: 'see what a removal deletes',
    run: async ({ target }) => target.contents,
  }),

  /** The console sends the name that the operator typed. */
  remove: change({
    name: 'organization.remove',
    role: 'owner',
    does: 'remove an organization',
    records: 'organization.removed',
    input: NAME,
    run: async ({ database, actor, target: { id, name }, input }) => {
      requireTyped(input.name, name)
      const result = await removeOrganization(database, actor.organizationIds, id)
      if (result.accounts > 0)
        throw new AppError('invalid_input', {
          message: `organization ${id} still has accounts: ${result.accounts}. Remove each of them first.`,
        })
      return { result, changes: { name: [name, null] } }
    },
  }),
}

export function requireTyped(typed: string, name: string): void {
  if (typed.trim() !== name.trim()) refuseInput('name', 'is not the name of what would be removed')
}
