/** Prometheus metrics of official accounts: what is wrong with each. */
import { Gauge, type Registry } from 'prom-client'

/** What the metrics show of an account. */
export interface AccountProblems {
  id: bigint
  problems: Array<{ reason: string; word: 'quiet' | 'degraded' | 'broken' }>
}

const VALUES = { quiet: 1, degraded: 2, broken: 3 }

/** Returns a function that replaces what is shown. */
export function accountProblemGauge(registry: Registry): (accounts: AccountProblems[]) => void {
  const problems = new Gauge({
    name: 'oa_audience_account_problem',
    aggregator: 'max',
    help: 'Problems of official accounts: 1 the account is quiet, 2 it is degraded, 3 it is broken',
    labelNames: ['account', 'reason'] as const,
    registers: [registry],
  })
  return (accounts) => {
    problems.reset()
    for (const { id, problems: found } of accounts)
      for (const { reason, word } of found) problems.set({ account: String(id), reason }, VALUES[word])
  }
}
