/** The accounts of which one person is a member. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import type { OrganizationIds } from '../operators/actor.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { LINE_USER_ID } from './member.ts'

/** The accounts of one provider of LINE. A page and a task name each of them. */
export const MEMBERSHIPS_MAX = 1_000

export type Membership = {
  accountId: AccountId
  accountName: string
  organizationId: OrganizationId
  memberId: bigint
}

/**
 * Driven by audience_member_any_user. `offset 0` makes the join one index lookup per membership.
 *
 * $1 organization ids bigint[], null: all; $2 user id text; $3 maximum number of rows int
 */
export const selectMemberships = statement('select-memberships')`
    select a.id as "accountId", a.name as "accountName", a.organization_id as "organizationId", m.id as "memberId"
      from (select id, channel_oa_id, organization_id, user_id from audience_member
             where hashtextextended(user_id, 0) = hashtextextended($2, 0) offset 0) m
      join lateral (
        select id, name, organization_id from official_account
         where id = m.channel_oa_id and organization_id = m.organization_id
           and visible(organization_id, $1) offset 0) a on true
     where m.user_id = $2
     order by a.name, a.id
     limit $3`

/**
 * Returns the memberships in the accounts that the organizations have. LINE gives one person the same user id at all accounts of one
 * provider. An id of another form may belong to different people in different accounts, so it has none.
 */
export async function findMemberships(
  database: Queryable,
  organizationIds: OrganizationIds,
  userId: string,
): Promise<Membership[]> {
  if (!LINE_USER_ID.test(userId)) return []
  return database.query<Membership>(selectMemberships, [organizationIds, userId, MEMBERSHIPS_MAX])
}

/** The account, and those of which the person is a member. */
export function accountsOf(
  { id, organizationId }: { id: AccountId; organizationId: OrganizationId },
  memberships: Membership[],
): Array<{ id: AccountId; organizationId: OrganizationId }> {
  const others = memberships.filter(({ accountId }) => accountId !== id)
  return [
    { id, organizationId },
    ...others.map((other) => ({ id: other.accountId, organizationId: other.organizationId })),
  ]
}
