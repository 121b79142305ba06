/** Changes and erases members. The activity log has their ids and the names of changed fields, but no values. */
import type { Scope } from '../accounts/scope.ts'
import { type Changes, recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import { erasePerson, eraseUser, type OnErased } from './erasure/erase.ts'
import type { ErasureLedger } from './erasure/erasure-ledger.ts'
import { type MemberUpdate, updateMember as updateMemberOf } from './update.ts'

/** The account in which the actor works. Read it with the actor's organizations, so that it is one of them. */
type Account = { id: bigint; organizationId: bigint }

const scopeOf = ({ id, organizationId }: Account, { name }: Actor): Scope => ({
  keyId: null,
  actorName: name,
  accountId: id,
  organizationId,
})

export function updateMember(
  database: Transactions,
  actor: Actor,
  account: Account,
  id: bigint,
  update: MemberUpdate,
  allowedVersions: bigint[] | null,
): Promise<{ version: bigint; json: string }> {
  return database.transaction(async (transaction) => {
    const updated = await updateMemberOf(transaction, scopeOf(account, actor), id, update, allowedVersions)
    await recordActivity(transaction, actor, {
      action: 'member.updated',
      object: { kind: 'member', id },
      organizationId: account.organizationId,
      accountId: account.id,
      changes: Object.fromEntries(Object.keys(update).map((field) => [field, 'replaced'])),
    })
    return updated
  })
}

/** Returns false if the account has no such member. */
export function eraseMember(
  database: Transactions,
  ledger: ErasureLedger | null,
  actor: Actor,
  account: Account,
  id: bigint,
  now: () => number,
): Promise<boolean> {
  return erasePerson(database, ledger, scopeOf(account, actor), id, now, null, recordErasure(actor, account))
}

/** Erases a person who need not be a member. Returns whether the person was one. */
export function eraseByUserId(
  database: Transactions,
  ledger: ErasureLedger | null,
  actor: Actor,
  account: Account,
  userId: string,
  now: () => number,
): Promise<boolean> {
  return eraseUser(database, ledger, scopeOf(account, actor), userId, now, recordErasure(actor, account))
}

/** The id of a person who was never a member is not recorded: the user id is personal. */
function recordErasure(actor: Actor, { id: accountId, organizationId }: Account): OnErased {
  return (transaction, memberId) =>
    recordActivity(transaction, actor, {
      action: 'member.erased',
      object: { kind: 'member', id: memberId },
      organizationId,
      accountId,
    })
}

/** @param changes numbers and formats only; filters without personal text */
export function recordExport(
  transaction: Queryable,
  actor: Actor,
  { id: accountId, organizationId }: Account,
  changes: Changes,
): Promise<void> {
  return recordActivity(transaction, actor, {
    action: 'members.exported',
    object: { kind: 'account', id: accountId },
    organizationId,
    accountId,
    changes,
  })
}
