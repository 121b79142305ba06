/** The memory of contents on their way to endpoints. */
import { expect, it } from 'vitest'
import { ContentBudget } from '../src/endpoints/holds.ts'

const MEBIBYTE = { events: 'x'.repeat(1024 * 1024), data: null }

/** Reads as many as are admitted. */
function readAll(budget: ContentBudget, isProven: boolean) {
  const reservations = []
  for (let next = budget.reserve(isProven); next !== null; next = budget.reserve(isProven)) {
    budget.settle(next, MEBIBYTE)
    reservations.push(next)
  }
  return reservations
}

it('admits contents of 64 MiB with their bodies, half of them for endpoints that are not quick', () => {
  const budget = new ContentBudget()
  expect(readAll(budget, false)).toHaveLength(16)
  expect(readAll(budget, true)).toHaveLength(16)
})

it('admits the next content when one has been written', () => {
  const budget = new ContentBudget()
  const [first] = readAll(budget, true)
  expect(budget.reserve(true)).toBeNull()
  if (first !== undefined) budget.end(first)
  expect(budget.reserve(true)).not.toBeNull()
})

it('expects the next contents to be as large as the last, so reads in progress exceed the budget by little', () => {
  const budget = new ContentBudget()
  const first = budget.reserve(true)
  if (first !== null) budget.settle(first, MEBIBYTE)
  let admitted = 1
  while (budget.reserve(true) !== null) admitted += 1
  expect(admitted).toBe(32)
})
