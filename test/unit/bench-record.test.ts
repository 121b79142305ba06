import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

/** A line of bench/intake.jsonl: processor time of a delivery, divided by that of a bare server. `why` explains a step. */
interface Landing {
  commit: string
  service: number
  postgres: number
  why?: string
}

/** On a quiet machine, two runs of the same code differ by less. On a shared one they do not: a bare server took 39 and 50 µs. Then `why` says so. */
const STEP_MAX = 1.08

function unexplainedSteps(lines: string[]): string[] {
  const landings = lines.map((line) => JSON.parse(line) as Landing)
  return landings
    .filter(({ service, postgres, why }, index) => {
      const before = landings[index - 1] ?? { service, postgres }
      return !why && (service > before.service * STEP_MAX || postgres > before.postgres * STEP_MAX)
    })
    .map(({ commit }) => commit)
}

it('each landing that made a delivery more than 8 % dearer says why', () => {
  const record = readFileSync(new URL('../../bench/intake.jsonl', import.meta.url), 'utf8')
  expect(unexplainedSteps(record.trim().split('\n'))).toEqual([])
})

it('finds a step without a reason in either part, and accepts one with a reason', () => {
  const line = (commit: string, service: number, postgres: number, why?: string) =>
    JSON.stringify({ commit, service, postgres, why })
  const lines = [
    line('a', 2, 2),
    line('b', 2.1, 2.1),
    line('c', 2.3, 2.1),
    line('d', 2.3, 2.3),
    line('e', 3, 3, 'TLS'),
  ]
  expect(unexplainedSteps(lines)).toEqual(['c', 'd'])
})
