/** Official accounts: what the console and commands do with one. The console's routes of changes are in console/manage-account-routes.ts. */
import { requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { StorableText } from '../http/validate.ts'
import { listAccountDays, listDeliveryHours } from '../operator/accounts/fleet.ts'
import { findVisibleAccount, type VisibleAccount } from '../operator/accounts/manage-accounts.ts'
import { findAccountContents } from '../operator/accounts/remove-account.ts'
import { listKeyDetails } from '../operator/clients.ts'
import { startFollowersImport } from '../operator/jobs/import-followers.ts'
import { startRemoval } from '../operator/jobs/remove-account.ts'
import { type Noun, operationsOf } from './operation.ts'
import { requireTyped } from './organizations.ts'

const HOURS_CHART_DAYS = 7
const DAYS_CHART_DAYS = 90

export const ACCOUNT: Noun<VisibleAccount> = {
  ...{ kind: 'account', word: 'account', plural: 'accounts' },
  find: async (database, actor, id) =>
    requireVisible(await findVisibleAccount(database, actor, id), 'account', id),
}
const { read, list, change } = operationsOf(ACCOUNT)

export const ACCOUNTS = {
  charts: read({
    name: 'account.charts',
    does: 'see charts of an account',
    run: async ({ database, target: { id } }) => ({
      hours: await listDeliveryHours(database, id, HOURS_CHART_DAYS),
      days: await listAccountDays(database, id, DAYS_CHART_DAYS),
    }),
  }),

  keys: list({
    name: 'account.keys',
    does: 'list keys of an account',
    run: ({ database, actor, target }, { after, limit }) => {
      const page = { afterId: after ?? INT64_MIN, limit }
      return listKeyDetails(database, actor.organizationIds, { account: target.id }, page)
    },
  }),

  /** The job records what it imported. */
  followers: change({
    name: 'account.followers',
    does: 'import followers',
    records: 'account.followers_imported',
    run: async ({ database, actor, target }) => ({
      ...{ job: await startFollowersImport(database, actor, target), changes: null },
    }),
  }),

  contents: read({
    name: 'account.contents',
    role: 'manager',
    does: 'see what a removal deletes',
    run: async ({ database, actor, target: { id } }) =>
      requireVisible(await findAccountContents(database, actor.organizationIds, id), 'account', id),
  }),

  /** The account is refused at once, and a job deletes its rows. */
  remove: change({
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
