/** Query plans on tables of a size at which a wrong plan costs seconds. */
import { expect, it } from 'vitest'
import { largeSteps, plansBySize, shapesOf } from '../support/plan-states.ts'

it('reads no more than a bounded part of 200,000 members in any statement, without statistics and with them', async () => {
  const { unanalyzed, analyzed, replanned } = await plansBySize({ membersOfTenant: 10_000, members: 200_000 })
  expect(shapesOf(unanalyzed)).toEqual(shapesOf(analyzed))
  expect(shapesOf(replanned)).toEqual(shapesOf(analyzed))
  for (const plans of [unanalyzed, analyzed, replanned]) expect(largeSteps(plans)).toEqual([])
})
