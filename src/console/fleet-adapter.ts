/** The facts of the fleet. */
import type { AccountId, OrganizationId } from '../accounts/account.ts'
import { listAccounts, listOrganizations } from '../operator/accounts.ts'
import type { Queryable } from '../postgres/statement.ts'

export type AccountWord = 'ok' | 'quiet' | 'degraded' | 'broken'

export interface Problem {
  reason: string
  word: Exclude<AccountWord, 'ok'>
  message: string
  fix: string
}

export interface FleetAccount {
  id: AccountId
  organizationId: OrganizationId
  organizationName: string
  name: string
  basicId: string | null
  word: AccountWord
  problems: Problem[]
  lastDeliveryAt: string | null
  deliveries24h: number
  events24h: number
  failed24h: number
  refused: number
  unapplied: number
  verifiedAt: string | null
  verified: boolean | null
  tokenExpiresAt: string | null
  quotaLimit: number | null
  quotaUsed: number | null
  members: number | null
  following: number | null
  blocked: number | null
  profilesDue: number | null
  countedAt: string | null
  growth7d: number | null
  endpointsPending: number
  endpointsFailed: number
  hours: number[]
  days: Array<number | null>
}

export interface DeliveryHour {
  hour: string
  deliveries: number
  accepted: number
  duplicates: number
  unapplied: number
  refused: number
  failed: number
}

export interface AccountDay {
  day: string
  following: number | null
  blocked: number | null
  lineFollowers: number | null
  lineBlocks: number | null
}

export async function listFleet(database: Queryable, _now: number): Promise<FleetAccount[]> {
  const organizations = new Map((await listOrganizations(database)).map(({ id, name }) => [id, name]))
  return (await listAccounts(database)).map(({ id, organizationId, name, basicId, verified }) => ({
    ...{ id, organizationId, name, basicId, verified, word: 'ok', problems: [] },
    organizationName: organizations.get(organizationId) ?? '',
    ...{ lastDeliveryAt: null, deliveries24h: 0, events24h: 0, failed24h: 0, refused: 0, unapplied: 0 },
    ...{ verifiedAt: null, tokenExpiresAt: null, quotaLimit: null, quotaUsed: null, members: null },
    ...{ following: null, blocked: null, profilesDue: null, countedAt: null, growth7d: null },
    ...{ endpointsPending: 0, endpointsFailed: 0, hours: [], days: [] },
  }))
}

export async function findFleetAccount(database: Queryable, id: AccountId, now: number) {
  return (await listFleet(database, now)).find((account) => account.id === id) ?? null
}

export async function listDeliveryHours(
  _: Queryable,
  _id: AccountId,
  _days: number,
): Promise<DeliveryHour[]> {
  return []
}

export async function listAccountDays(_: Queryable, _id: AccountId, _days: number): Promise<AccountDay[]> {
  return []
}
