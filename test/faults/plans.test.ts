/** The plans of all statements over tenants' rows, on small tables and on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { statements } from '../../src/postgres/statement.ts'
import { compareShapes, largeSteps, plansBySize } from '../support/plan-states.ts'
import type { Plan } from '../support/plans.ts'
import { FOR_ALL_ACCOUNTS, missingTenantStatements } from '../support/statements.ts'

/**
 * Commands in sessions without time limits, which read what they must. Counts of members, which are not due here. And what the
 * sender reads: its plans are not among the notices.
 */
const NOT_PLANNED =
  /^(delete-rows-of-account-.*|select-(account-contents|pending-erasures-of-account)|count-audience|load-delivery-contents)$/

/** `erasures reapply`, `doctor`, and the check of the ledger at a start: sessions of their own, which plan each statement for its arrays. */
const OF_SESSIONS = /^(compare-erasures|select-user-ids-by-hash|.*-again)$/

const normalized = (text: string) => text.replaceAll(/\s+/g, ' ').trim()

const ofSessions = () =>
  new Set(
    [...statements.values()].filter(({ name }) => OF_SESSIONS.test(name)).map(({ text }) => normalized(text)),
  )

it('plans the same without statistics and with them, and reads a bounded part of 100,000 members and 10,000 accounts', async () => {
  const sizes = { membersOfTenant: 10_000, members: 100_000, accounts: 10_000 }
  const { unanalyzed, analyzed, replanned } = await plansBySize(sizes)
  const excluded = ofSessions()
  const ofRequests = (plans: Plan[]) => plans.filter(({ text }) => !excluded.has(normalized(text)))
  for (const plans of [unanalyzed, replanned]) {
    expect(compareShapes(ofRequests(plans), ofRequests(analyzed))).toEqual([])
    const planned = new Set(plans.map(({ text }) => text))
    const missing = await missingTenantStatements(({ text }) => planned.has(text))
    expect(missing.filter((name) => !NOT_PLANNED.test(name))).toEqual(FOR_ALL_ACCOUNTS)
  }
  expect(largeSteps(ofRequests([...unanalyzed, ...analyzed, ...replanned]))).toEqual([])
})
