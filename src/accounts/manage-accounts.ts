/** Adds, updates and verifies official accounts. An account that the actor does not see does not exist for it. */
import { requireVisible } from '../errors.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { LineApi } from '../line-api/client.ts'
import { type Changes, recordAccount } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import type { Account } from './account.ts'
import {
  accountChanges,
  changedColumns,
  concernsVerification,
  type Proof,
  proveChannel,
  requireFreeChannel,
} from './account-fields.ts'
import {
  type AccountColumns,
  type AddedAccount,
  decryptAccount,
  addAccount as insertAccount,
  type NewAccount,
  updateAccount as updateColumns,
} from './provisioning.ts'
import type { Claims, Verification } from './verification.ts'
import { checkAccount, storeOutcome, type Verifier } from './verify.ts'

const seesOrganization = ({ organizationIds }: Actor, id: OrganizationId): boolean =>
  organizationIds === null || organizationIds.includes(id)

export interface AccountParts {
  database: Transactions
  /** null: secrets are stored unproven */
  lineApi: LineApi | null
}

/**
 * Returns null if the actor does not see the organization. Throws `invalid_input` for a channel that LINE refuses or another account has,
 * and the violated constraint if the organization does not exist.
 */
export async function addAccount(
  { database, lineApi }: AccountParts,
  actor: Actor,
  organizationId: OrganizationId,
  columns: NewAccount,
): Promise<(AddedAccount & { proof: Proof }) | null> {
  if (!seesOrganization(actor, organizationId)) return null
  await requireFreeChannel(database, actor, columns.channel_id)
  const proof = await proveChannel(lineApi, columns)
  const added = await database.transaction((transaction) =>
    addAccountIn(transaction, actor, organizationId, columns),
  )
  return { ...added, proof }
}

export async function addAccountIn(
  transaction: Queryable,
  actor: Actor,
  organizationId: OrganizationId,
  columns: NewAccount,
): Promise<AddedAccount> {
  const added = await insertAccount(transaction, organizationId, columns)
  const changes = accountChanges({}, columns)
  await recordAccount(transaction, actor, 'account.added', { ...added, organizationId }, changes)
  return added
}

const lockAccount = statement('lock-account-of-operator')`
    select id, organization_id as "organizationId", to_jsonb(account) - 'person_key' as columns
      from official_account account
     where id = $1 and visible(organization_id, $2)
       for no key update`

/** The stored outcome belongs to the previous credentials. */
const clearVerification = statement('clear-account-verification')`
    update official_account set verification = null, verified_at = null where id = $1`

type LockedAccount = { id: AccountId; organizationId: OrganizationId; columns: AccountColumns }

/**
 * Returns what changed. Throws NotVisible, and `invalid_input` for a channel that LINE refuses or another account has. Two changes
 * at the same time, one of the id and one of the secret, may store a pair that nobody proved.
 */
export async function updateAccount(
  { database, lineApi }: AccountParts,
  actor: Actor,
  id: AccountId,
  columns: Partial<AccountColumns>,
): Promise<{ changes: Changes; proof: Proof }> {
  const proof = await checkChannel({ database, lineApi }, actor, id, columns)
  const changes = await database.transaction((transaction) =>
    updateAccountIn(transaction, actor, id, columns),
  )
  return { changes, proof }
}

async function checkChannel(
  { database, lineApi }: AccountParts,
  actor: Actor,
  id: AccountId,
  columns: Partial<AccountColumns>,
): Promise<Proof> {
  if (columns.channel_id === undefined && columns.channel_secret === undefined) return 'not_asked'
  const account = await database.transaction((transaction) => lockStored(transaction, actor, id))
  const changes = accountChanges(account.stored, columns)
  if ('channelId' in changes) await requireFreeChannel(database, actor, columns.channel_id)
  if (!('channelId' in changes) && !('channelSecret' in changes)) return 'not_asked'
  return proveChannel(lineApi, { ...account.stored, ...columns })
}

async function lockStored(transaction: Queryable, { organizationIds }: Actor, id: AccountId) {
  const [locked] = await transaction.query<LockedAccount>(lockAccount, [id, organizationIds])
  const account = requireVisible(locked, 'account', id)
  return { ...account, stored: decryptAccount(transaction.secretKeys, id, account.columns) }
}

export async function updateAccountIn(
  transaction: Queryable,
  actor: Actor,
  id: AccountId,
  columns: Partial<AccountColumns>,
): Promise<Changes> {
  const account = await lockStored(transaction, actor, id)
  const changes = accountChanges(account.stored, columns)
  if (Object.keys(changes).length === 0) return changes
  await updateColumns(transaction, id, changedColumns(changes, columns))
  if (concernsVerification(changes)) await transaction.query(clearVerification, [id])
  await recordAccount(transaction, actor, 'account.updated', account, changes)
  return changes
}

interface OperatorVerifier extends Verifier {
  database: Transactions
}

/** Throws `platform_unavailable` and stores nothing if the platform is unreachable. No transaction is open while it is asked. */
export async function verifyAccount(
  verifier: OperatorVerifier,
  actor: Actor,
  account: Account,
  claims: Claims,
): Promise<Verification> {
  const verification = await checkAccount(verifier, account, claims)
  const { verified, checks } = verification
  const failed = checks.filter(({ ok }) => ok === false).map(({ name }) => name)
  await verifier.database.transaction(async (transaction) => {
    await storeOutcome(transaction, account, verification, true)
    const changes = { verified, ...(failed.length > 0 && { failed }) }
    await recordAccount(transaction, actor, 'account.verified', account, changes)
  })
  return verification
}

const selectVisible = statement('select-account-of-operator')`
    select id, id as "accountId", organization_id as "organizationId", name
      from official_account
     where id = $1 and visible(organization_id, $2)`

export type VisibleAccount = {
  id: AccountId
  accountId: AccountId
  organizationId: OrganizationId
  name: string
}

export async function findVisibleAccount(
  database: Queryable,
  { organizationIds }: Pick<Actor, 'organizationIds'>,
  id: AccountId,
): Promise<VisibleAccount | null> {
  const [account] = await database.query<VisibleAccount>(selectVisible, [id, organizationIds])
  return account ?? null
}
