/** Problems that are only consequences of another one are shown with it. */
import { expect, it } from 'vitest'
import { type Problem, REASONS, type Reason } from '../../src/watch/account-status.ts'
import { CONSEQUENCES, causesOf } from '../../web/parts/problem-causes.ts'

const ALL = Object.keys(REASONS) as Reason[]

it('has each consequence behind its cause, in the order in which problems are listed', () => {
  const misplaced = Object.entries(CONSEQUENCES).flatMap(([cause, consequences]) =>
    consequences.filter((reason) => ALL.indexOf(reason) <= ALL.indexOf(cause as Reason)),
  )
  expect(misplaced).toEqual([])
})

it('shows silence with what causes it, and other problems apart', () => {
  const reasons: Reason[] = [
    'webhook_elsewhere',
    'webhook_test_failed',
    'endpoint_failing',
    'never_delivered',
  ]
  const problems = reasons.map((reason) => ({ reason }) as Problem)
  const shown = causesOf(problems).map(({ problem, consequences }) => [
    problem.reason,
    consequences.map(({ reason }) => reason),
  ])
  expect(shown).toEqual([
    ['webhook_elsewhere', ['webhook_test_failed', 'never_delivered']],
    ['endpoint_failing', []],
  ])
})
