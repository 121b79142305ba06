/** The plans of all statements, on small tables and on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { compareShapes, largeSteps, plansBySize } from '../support/plan-states.ts'

it('plans the same without statistics and with them, and reads a bounded part of 200,000 members and 30,000 accounts', async () => {
  const sizes = { membersOfTenant: 10_000, members: 200_000, accounts: 30_000 }
  const { unanalyzed, analyzed, replanned } = await plansBySize(sizes)
  for (const plans of [unanalyzed, replanned]) {
    const { statements, different } = compareShapes(plans, analyzed)
    expect(statements).toBeGreaterThan(60)
    expect(different).toEqual([])
  }
  expect(largeSteps([...unanalyzed, ...analyzed, ...replanned])).toEqual([])
})
