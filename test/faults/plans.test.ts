/** The plans of all statements over tenants' rows, on small tables and on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { compareShapes, largeSteps, plansBySize } from '../support/plan-states.ts'
import { FOR_ALL_ACCOUNTS, missingTenantStatements } from '../support/statements.ts'

/**
 * Commands in sessions without time limits, which read what they must. Counts of members, which are not due here. And what the
 * sender reads: its plans are not among the notices.
 */
const NOT_PLANNED =
  /^(delete-rows-of-account-.*|select-(account-contents|newest-events|pending-erasures-of-account)|count-audience|load-delivery-contents)$/

it('plans the same without statistics and with them, and reads a bounded part of 200,000 members and 30,000 accounts', async () => {
  const sizes = { membersOfTenant: 10_000, members: 200_000, accounts: 30_000 }
  const { unanalyzed, analyzed, replanned } = await plansBySize(sizes)
  for (const plans of [unanalyzed, replanned]) {
    expect(compareShapes(plans, analyzed)).toEqual([])
    const planned = new Set(plans.map(({ text }) => text))
    const missing = await missingTenantStatements(({ text }) => planned.has(text))
    expect(missing.filter((name) => !NOT_PLANNED.test(name))).toEqual(FOR_ALL_ACCOUNTS)
  }
  expect(largeSteps([...unanalyzed, ...analyzed, ...replanned])).toEqual([])
})
