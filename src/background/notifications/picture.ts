/** What one pass saw: how many accounts have each status, and which of them have a problem. */
import type { AccountId, OrganizationId } from '../../accounts/account.ts'
import { type AccountStatus, assessAccount, type Reason } from '../../operator/accounts/account-status.ts'
import { type AccountFacts, readFleet } from '../../operator/accounts/fleet-facts.ts'
import { ALL_ORGANIZATIONS } from '../../operator/actor.ts'
import type { Queryable } from '../../postgres/statement.ts'
import type { Channel } from './plan-messages.ts'
import type { Sighting } from './transitions.ts'

export type Counts = Record<AccountStatus, number>

const NO_ACCOUNTS: Counts = { ok: 0, quiet: 0, degraded: 0, broken: 0 }

export class Picture {
  /** accounts that are not ok */
  readonly problems = new Map<AccountId, Sighting>()
  readonly #counts = new Map<OrganizationId, Counts>()
  readonly #all: Counts = { ...NO_ACCOUNTS }

  add(seen: Sighting): void {
    const counts = this.#counts.get(seen.organizationId) ?? { ...NO_ACCOUNTS }
    this.#counts.set(seen.organizationId, counts)
    counts[seen.status] += 1
    this.#all[seen.status] += 1
    if (seen.status !== 'ok') this.problems.set(seen.id, seen)
  }

  /** @param organizationId null: all */
  countsOf(organizationId: OrganizationId | null): Counts {
    if (organizationId === null) return this.#all
    return this.#counts.get(organizationId) ?? NO_ACCOUNTS
  }

  problemsOf(organizationId: OrganizationId | null): Sighting[] {
    return [...this.problems.values()].filter(
      (seen) => organizationId === null || seen.organizationId === organizationId,
    )
  }

  /** Whether this is the worst problem of most accounts. */
  isCommon(organizationId: OrganizationId | null, reason: Reason): boolean {
    const having = this.problemsOf(organizationId).filter(({ problem }) => problem?.reason === reason)
    return having.length > totalOf(this.countsOf(organizationId)) / 2
  }
}

/** What the transaction of a pass works with. Times are milliseconds since 1970. */
export interface Seen {
  transaction: Queryable
  picture: Picture
  /** active ones */
  channels: Channel[]
  now: number
}

export const totalOf = (counts: Counts): number => counts.ok + counts.quiet + counts.degraded + counts.broken

/** Holds one page of facts at a time in memory. */
export async function takePicture(database: Queryable, now: number): Promise<Picture> {
  const picture = new Picture()
  for await (const page of readFleet(database, ALL_ORGANIZATIONS))
    for (const facts of page) picture.add(sightingOf(facts, now))
  return picture
}

function sightingOf(facts: AccountFacts, now: number): Sighting {
  const { status, problems } = assessAccount(facts, now)
  return {
    ...{ id: facts.id, organizationId: facts.organizationId, status, problem: problems[0] ?? null },
    checkedAt: facts.checkedAt === null ? null : Date.parse(facts.checkedAt),
  }
}
