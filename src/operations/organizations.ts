/** Organizations, and the official accounts that they own. The console's routes of changes of accounts are in console/manage-account-routes.ts. */

import { listKeyDetails } from '../accounts/clients.ts'
import { findVisibleAccount, type VisibleAccount } from '../accounts/manage-accounts.ts'
import {
  findOrganizationContents,
  listOrganizations,
  type OrganizationContents,
  removeOrganization,
} from '../accounts/organizations.ts'
import { addOrganization } from '../accounts/provisioning.ts'
import { findAccountContents } from '../accounts/remove-account.ts'
import { AppError, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import { startFollowersImport } from '../jobs/onboard-accounts.ts'
import { startRemoval } from '../jobs/remove-account.ts'
import { statement } from '../postgres/statement.ts'
import { listAccountDays, listDeliveryHours } from '../watch/fleet.ts'
import { MUTE_MAX_DAYS, readMute, setMuteOf } from '../watch/mute.ts'
import { type Noun, operationsOf, type Target } from './operation.ts'

type Organization = { id: bigint; organizationId: bigint; name: string }

/** $1 organization id bigint, $2 organization ids bigint[], null: all */
const lockOrganization = statement('lock-organization-for-rename')`
    select name from organization
     where id = $1 and visible(id, $2)
       for no key update`

/** $1 organization id bigint, $2 name text */
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

const HOURS_CHART_DAYS = 7
const DAYS_CHART_DAYS = 90

export const ACCOUNT: Noun<VisibleAccount> = {
  kind: 'account',
  word: 'account',
  plural: 'accounts',
  find: async (database, actor, id) =>
    requireVisible(await findVisibleAccount(database, actor, id), 'account', id),
}
const account = operationsOf(ACCOUNT)

export const MUTE = {
  until: StorableText({
    ...{ minLength: 1, maxLength: 256 },
    description: `ISO 8601 with an offset or Z, or a date (00:00 UTC), at most ${MUTE_MAX_DAYS} days from now`,
  }),
  reason: StorableText({ minLength: 1, maxLength: 256, description: 'why, for other operators' }),
}

export const ACCOUNTS = {
  charts: account.read({
    name: 'account.charts',
    does: 'see charts of an account',
    run: async ({ database, target: { id } }) => ({
      hours: await listDeliveryHours(database, id, HOURS_CHART_DAYS),
      days: await listAccountDays(database, id, DAYS_CHART_DAYS),
    }),
  }),

  keys: account.list({
    name: 'account.keys',
    does: 'list keys of an account',
    run: ({ database, actor, target }, { after, limit }) => {
      const page = { afterId: after ?? INT64_MIN, limit }
      return listKeyDetails(database, actor.organizationIds, { account: target.id }, page)
    },
  }),

  /** The job records what it imported. */
  followers: account.change({
    name: 'account.followers',
    does: 'import followers',
    records: 'account.followers_imported',
    run: async ({ database, actor, target }) => ({
      job: await startFollowersImport(database, actor, target),
      changes: null,
    }),
  }),

  mute: account.change({
    name: 'account.mute',
    does: 'mute the problem of an account',
    help: 'send no messages about the worst problem of an account until a date, or until another problem takes its place',
    records: 'account.muted',
    input: MUTE,
    run: async ({ database, target, input }) => ({
      changes: await setMuteOf(database, target.id, readMute(input)),
    }),
  }),

  unmute: account.change({
    name: 'account.unmute',
    does: 'end a mute',
    help: 'end the mute of an account: its problem is announced like a new one',
    records: 'account.unmuted',
    run: async ({ database, target }) => ({ changes: await setMuteOf(database, target.id, null) }),
  }),

  contents: account.read({
    name: 'account.contents',
    role: 'manager',
    does: 'see what a removal deletes',
    run: async ({ database, actor, target: { id } }) =>
      requireVisible(await findAccountContents(database, actor.organizationIds, id), 'account', id),
  }),

  /** The account is refused at once, and a job deletes its rows. */
  remove: account.change({
    name: 'account.remove',
    does: 'remove an account',
    records: 'account.removed',
    input: { name: StorableText({ maxLength: 256 }) },
    run: async ({ database, actor, target, input }) => {
      requireTyped(input.name, target.name)
      return { job: await startRemoval(database, actor, target), changes: { name: [target.name, null] } }
    },
  }),
}

/** Refuses a removal unless the operator typed the name. */
function requireTyped(typed: string, name: string): void {
  if (typed.trim() !== name.trim()) refuseInput('name', 'is not the name of what would be removed')
}
