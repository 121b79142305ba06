import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { endpointResponded } from './facts.ts'

/** Deliveries to endpoints take milliseconds, or hours after an outage. */
const DELIVERY_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 60, 600, 3600, 21_600, 86_400]

const OUTCOMES = ['accepted', 'rejected', 'no_response'] as const

export interface EndpointBacklog {
  id: bigint
  /** active, or anything else: paused */
  status: string
  pending: number
  failed: number
  /** null: nothing is pending */
  oldestPendingSeconds: number | null
}

export function countEndpointAttempts(registry: Registry): () => void {
  const attempts = new Counter({
    name: 'oa_audience_endpoint_attempts_total',
    help: 'Attempts to send a delivery to an endpoint by outcome: accepted, rejected (not 2xx), or no_response',
    labelNames: ['outcome'] as const,
    registers: [registry],
  })
  const seconds = new Histogram({
    name: 'oa_audience_endpoint_delivery_seconds',
    help: 'Time from the commit of a delivery until its endpoint accepted it',
    buckets: DELIVERY_BUCKETS,
    registers: [registry],
  })
  for (const outcome of OUTCOMES) attempts.inc({ outcome }, 0)
  return endpointResponded.subscribe(({ outcome, sinceCommitMs }) => {
    attempts.inc({ outcome })
    // The clock of the database may step back.
    if (outcome === 'accepted') seconds.observe(Math.max(0, sinceCommitMs) / 1000)
  })
}

/** Returns a function that replaces the backlogs of all endpoints. */
export function endpointBacklogGauges(registry: Registry): (endpoints: EndpointBacklog[]) => void {
  const gauge = (name: string, help: string) =>
    new Gauge({
      name,
      help,
      aggregator: 'max',
      labelNames: ['endpoint', 'status'] as const,
      registers: [registry],
    })
  const pending = gauge(
    'oa_audience_endpoint_pending',
    'Deliveries that wait for the endpoint, at most 10,000',
  )
  const failed = gauge(
    'oa_audience_endpoint_failed',
    'Deliveries whose retries have ended without success, at most 10,000',
  )
  const oldest = gauge(
    'oa_audience_endpoint_oldest_pending_seconds',
    'Age of the oldest delivery that waits for the endpoint; 0: none',
  )
  return (endpoints) => {
    for (const each of [pending, failed, oldest]) each.reset()
    for (const { id, status, ...backlog } of endpoints) {
      const labels = { endpoint: String(id), status: status === 'active' ? 'active' : 'paused' }
      pending.set(labels, backlog.pending)
      failed.set(labels, backlog.failed)
      oldest.set(labels, backlog.oldestPendingSeconds ?? 0)
    }
  }
}

export interface AccountProblems {
  id: bigint
  problems: Array<{ reason: string; status: 'quiet' | 'degraded' | 'broken' }>
}

const VALUES = { quiet: 1, degraded: 2, broken: 3 }

/** Returns a function that replaces the problems of all accounts. */
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
      for (const { reason, status } of found) problems.set({ account: String(id), reason }, VALUES[status])
  }
}
