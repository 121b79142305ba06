/** Official accounts. Only results that make a new address contain it, because it is like a secret. */
import { randomBytes } from 'node:crypto'
import { findAccount } from '../accounts/account.ts'
import {
  type AccountFields,
  columnsOf,
  faultsOf,
  type Proof,
  SECRET_MAX_LENGTH,
} from '../accounts/account-fields.ts'
import { findAccountDetails, findVerification, searchAccounts } from '../accounts/accounts.ts'
import { listKeyDetails } from '../accounts/clients.ts'
import {
  addAccount,
  findVisibleAccount,
  updateAccount,
  type VisibleAccount,
  verifyAccount,
} from '../accounts/manage-accounts.ts'
import type { AccountColumns, NewAccount } from '../accounts/provisioning.ts'
import { findAccountContents } from '../accounts/remove-account.ts'
import { AppError, FatalError, requireVisible } from '../errors.ts'
import { INT64_MIN } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import type { AccountId } from '../ids.ts'
import { callbackPath } from '../intake/mbox/mbox-source.ts'
import { findWebhook, publicUrlFault, replaceWebhook } from '../jobs/onboard.ts'
import { startFollowersImport } from '../jobs/onboard-accounts.ts'
import { startRemoval } from '../jobs/remove-account.ts'
import { deliveryPaths } from '../line-api/line-signature.ts'
import type { Queryable } from '../postgres/statement.ts'
import { listAccountDays, listDeliveryHours } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { MUTE_MAX_DAYS, readMute, setMuteOf } from '../watch/mutes.ts'
import { confirmStatus } from '../watch/store-statuses.ts'
import { Default, DisplayName, Id, orNull, ShortText } from './fields.ts'
import { type Noun, operationsOf, type Services } from './operation.ts'
import { requireTyped } from './organizations.ts'

const MATCHES_MAX = 20
const HOURS_CHART_DAYS = 7
const DAYS_CHART_DAYS = 90
/** As the database's own `random_token`. */
const OA_HASH_BYTES = 24

export const ACCOUNT: Noun<VisibleAccount> = {
  kind: 'account',
  word: 'account',
  plural: 'accounts',
  find: async (database, actor, id) =>
    requireVisible(await findVisibleAccount(database, actor, id), 'account', id),
}
const { read, list, change, call } = operationsOf(ACCOUNT, 'now', 'lineApi', 'verifier', 'baseUrl')

const Value = (description: string) => Type.Optional(orNull(StorableText({ maxLength: 256, description })))
const SecretValue = (description: string) =>
  Type.Optional(
    Object.assign(orNull(StorableText({ maxLength: SECRET_MAX_LENGTH, description })), { secret: true }),
  )

/** An empty text or null removes an optional value. */
const FIELDS = {
  channelId: Value('id of the LINE channel'),
  channelSecret: SecretValue("secret that signs LINE's deliveries"),
  channelAccessToken: SecretValue('access token of the channel (default: issued from its id and secret)'),
  botUserId: Value('user id of the bot, U and 32 hex digits; compared with the destination of deliveries'),
  basicId: Value('basic id of the account, such as @abc1234'),
  chatSecret: SecretValue("secret that signs the support chat's callbacks"),
  chatInboxId: Value("the account's inbox in a support chat with several inboxes"),
  oaHash: SecretValue("identifies the account in the support chat's callback address (default: random)"),
  trackingKey: Value('identifies the account in tracking events (default: random)'),
  loginChannelIds: Value('LINE Login or MINI App channels whose ID tokens prove people in tracking events'),
}

/** Throws `invalid_input`. The rules are those of fleet files. */
export function accountColumns(fields: AccountFields): Partial<AccountColumns> {
  const trimmed = Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value?.trim() ?? value]),
  )
  const details = faultsOf(trimmed)
  if (details.length > 0) throw new AppError('invalid_input', { details })
  return columnsOf(trimmed)
}

const UNPROVEN = {
  unproven: Default(
    Type.Boolean({
      description: 'store channel id and secret without asking LINE whether they belong together',
    }),
    false,
  ),
}

export function addressesOf(baseUrl: string, id: bigint, oaHash: string) {
  const [webhookPath = ''] = deliveryPaths(String(id))
  return { webhookUrl: baseUrl + webhookPath, callbackUrl: baseUrl + callbackPath(oaHash) }
}

const ifUnproven = (proof: Proof) => (proof === 'unproven' ? { isUnproven: true } : {})

export const MUTE = {
  until: StorableText({
    ...{ minLength: 1, maxLength: 256 },
    description: `ISO 8601 with an offset or Z, or a date (00:00 UTC), at most ${MUTE_MAX_DAYS} days from now`,
  }),
  reason: StorableText({ minLength: 1, maxLength: 256, description: 'why, for other operators' }),
}

const CLAIMS = {
  testWebhook: Default(Type.Boolean(), false),
  proveRedelivery: Default(Type.Boolean(), false),
}

async function webhookOf(database: Queryable, id: AccountId, verifier: Services['verifier']) {
  const account = requireVisible(await findAccount(database, id), 'account', id)
  const fault = publicUrlFault(verifier.publicUrl)
  if (fault !== null) throw refusal(fault)
  return { account, current: await asInput(findWebhook(verifier, account)) }
}

/** A refusal by LINE is a fault of the account's settings, not of the service. */
async function asInput<T>(work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    throw error instanceof FatalError ? refusal(error.message) : error
  })
}

const refusal = (message: string) => new AppError('invalid_input', { message })

export const ACCOUNTS = {
  /** LINE proves the channel before the transaction, which records the addition. */
  add: call({
    name: 'account.add',
    does: 'add an account',
    isOfAll: true,
    records: 'account.added',
    input: {
      organization: Id('id of the organization that owns it'),
      name: DisplayName,
      ...FIELDS,
      ...UNPROVEN,
    },
    run: async ({ database, actor, services: { lineApi, baseUrl }, input }) => {
      const { organization, unproven, ...fields } = input
      const columns = accountColumns(fields) as NewAccount
      const parts = { database, lineApi: unproven ? null : lineApi }
      const added = await addAccount(parts, actor, organization, columns)
      if (added === null) return refuseInput('organization', `organization ${organization} does not exist.`)
      const { id, oaHash, trackingKey, proof } = added
      const addresses = addressesOf(baseUrl, id, oaHash)
      return { result: { id, oaHash, trackingKey, ...addresses, ...ifUnproven(proof) }, changes: null }
    },
  }),

  update: call({
    name: 'account.update',
    does: 'change an account',
    records: 'account.updated',
    input: { name: Type.Optional(DisplayName), ...FIELDS, ...UNPROVEN },
    run: async ({ database, actor, target: { id }, services, input: { unproven, ...fields } }) => {
      const parts = { database, lineApi: unproven ? null : services.lineApi }
      const { changes, proof } = await updateAccount(parts, actor, id, accountColumns(fields))
      return { result: { changes, ...ifUnproven(proof) }, changes: null }
    },
  }),

  /** The old address stops working at once. */
  callbackAddress: call({
    name: 'account.callback-address',
    does: 'make a new callback address',
    records: 'account.updated',
    run: async ({ database, actor, target: { id }, services: { lineApi, baseUrl } }) => {
      const oaHash = randomBytes(OA_HASH_BYTES).toString('base64url')
      await updateAccount({ database, lineApi }, actor, id, { oa_hash: oaHash })
      return { result: { callbackUrl: addressesOf(baseUrl, id, oaHash).callbackUrl }, changes: null }
    },
  }),

  list: read({
    name: 'account.list',
    does: 'find accounts',
    input: { q: Type.Optional(ShortText) },
    run: async ({ database, actor, input: { q = '' } }) => ({
      accounts: await searchAccounts(database, actor.organizationIds, q.trim(), MATCHES_MAX),
    }),
  }),

  show: read({
    name: 'account.show',
    does: 'see an account',
    run: async ({ database, actor, target: { id }, services: { now, verifier } }) => {
      // Anybody who has the oaHash can write events, so it is treated like a secret.
      const { oaHash: _, ...account } = await findAccountDetails(database, actor.organizationIds, id)
      await confirmStatus(database, id, now())
      const facts = await findFleetAccount(database, actor.organizationIds, id)
      return {
        account,
        verification: await findVerification(database, id),
        facts: requireVisible(facts, 'account', id),
        webhookPath: deliveryPaths(String(id))[0] ?? '',
        publicUrl: verifier.publicUrl,
      }
    },
  }),

  verify: call({
    name: 'account.verify',
    does: 'verify an account',
    records: 'account.verified',
    input: CLAIMS,
    run: async ({ database, actor, target: { id }, services: { verifier }, input }) => {
      const account = requireVisible(await findAccount(database, id), 'account', id)
      const result = await verifyAccount({ ...verifier, database }, actor, account, input)
      return { result, changes: null }
    },
  }),

  webhook: read({
    name: 'account.webhook',
    role: 'manager',
    does: "see LINE's webhook URL of an account",
    run: async ({ database, target: { id }, services: { verifier } }) =>
      (await webhookOf(database, id, verifier)).current,
  }),

  setWebhook: call({
    name: 'account.set-webhook',
    does: "set LINE's webhook URL of an account",
    records: 'account.webhook_set',
    input: { replaces: orNull(Type.String({ maxLength: 2_000 })) },
    run: async ({ database, actor, target: { id }, services: { verifier }, input: { replaces } }) => {
      const { account, current } = await webhookOf(database, id, verifier)
      // The operator confirmed to replace one URL. Another one may be in use by now.
      if (current.url !== replaces)
        throw refusal('The webhook URL has changed meanwhile. Check it and confirm again.')
      if (!current.isHere) await asInput(replaceWebhook({ ...verifier, database, actor }, account, current))
      return { changes: null }
    },
  }),

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

  followers: change({
    name: 'account.followers',
    does: 'import followers',
    records: 'account.followers_imported',
    run: async ({ database, actor, target }) => ({
      job: await startFollowersImport(database, actor, target),
      changes: null,
    }),
  }),

  mute: change({
    name: 'account.mute',
    does: 'mute the problem of an account',
    help: 'send no messages about the worst problem of an account until a date, or until another problem takes its place',
    records: 'account.muted',
    input: MUTE,
    run: async ({ database, target, input }) => ({
      changes: await setMuteOf(database, target.id, readMute(input)),
    }),
  }),

  unmute: change({
    name: 'account.unmute',
    does: 'end a mute',
    help: 'end the mute of an account: its problem is announced like a new one',
    records: 'account.unmuted',
    run: async ({ database, target }) => ({ changes: await setMuteOf(database, target.id, null) }),
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
      return { job: await startRemoval(database, actor, target), changes: null }
    },
  }),
}
