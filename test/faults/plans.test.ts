/** Query plans on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { compareShapes, largeSteps, plansBySize } from '../support/plan-states.ts'

it('reads no more than a bounded part of 200,000 members in any statement, without statistics and with them', async () => {
  const { unanalyzed, analyzed, replanned } = await plansBySize({ membersOfTenant: 10_000, members: 200_000 })
  for (const plans of [unanalyzed, replanned]) expect(compareShapes(plans, analyzed).different).toEqual([])
  for (const plans of [unanalyzed, analyzed, replanned]) expect(largeSteps(plans)).toEqual([])
})
