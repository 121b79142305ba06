import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { endpointResponded } from './facts.ts'
import { chatName, oneLine } from './one-line.ts'

const DELIVERY_BUCKETS = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 60, 600, 3600, 21_600, 86_400]

const OUTCOMES = ['accepted', 'rejected', 'no_response'] as const

export interface EndpointBacklog {
  id: bigint
  accountId: bigint
  name: string
  url: string
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

export function endpointBacklogGauges(registry: Registry): (endpoints: EndpointBacklog[]) => void {
  const registers = [registry]
  const gauge = (name: string, help: string) =>
    new Gauge({ name, help, aggregator: 'max', labelNames: ['endpoint', 'status'] as const, registers })
  const pending = gauge(
    'oa_audience_endpoint_pending',
    'Deliveries that wait for the endpoint; counted up to 10,000, or about 50,000 of all endpoints',
  )
  const failed = gauge(
    'oa_audience_endpoint_failed',
    'Deliveries whose retries have ended without success; counted like those that wait',
  )
  const oldest = gauge(
    'oa_audience_endpoint_oldest_pending_seconds',
    'Age of the oldest delivery that waits for the endpoint; 0: none',
  )
  // As labels of the other gauges, these texts would appear three times in each scrape, and a new name would begin new series.
  const info = new Gauge({
    name: 'oa_audience_endpoint_info',
    help: 'Always 1: the account, name and host of each endpoint for which deliveries wait or have failed',
    aggregator: 'max',
    labelNames: ['endpoint', 'account', 'name', 'host'] as const,
    registers,
  })
  return (endpoints) => {
    for (const each of [pending, failed, oldest, info]) each.reset()
    for (const { id, accountId, name, url, status, ...backlog } of endpoints) {
      const endpoint = String(id)
      info.set({ endpoint, account: String(accountId), name: nameLabel(name), host: hostLabel(url) }, 1)
      const labels = { endpoint, status: status === 'active' ? 'active' : 'paused' }
      pending.set(labels, backlog.pending)
      failed.set(labels, backlog.failed)
      oldest.set(labels, backlog.oldestPendingSeconds ?? 0)
    }
  }
}

export interface AccountProblems {
  id: bigint
  name: string
  problems: Array<{ reason: string; status: 'quiet' | 'degraded' | 'broken'; muted?: object }>
}

/** Accounts whose names are exported for each reason. An alert lists five. 23 reasons × 100 × 90 bytes = 0.2 MB in the worst case. */
const NAMED_MAX = 100

const VALUES = { quiet: 1, degraded: 2, broken: 3 }

export function accountProblemGauge(registry: Registry): (accounts: AccountProblems[]) => void {
  const problems = new Gauge({
    name: 'oa_audience_account_problem',
    aggregator: 'max',
    help: 'Problems of official accounts: 1 the account is quiet, 2 it is degraded, 3 it is broken; muted="yes": an operator has muted it',
    labelNames: ['account', 'reason', 'muted'] as const,
    registers: [registry],
  })
  const info = new Gauge({
    name: 'oa_audience_account_info',
    aggregator: 'max',
    help: `Always 1: the names of accounts with a problem, for each reason those of at most ${NAMED_MAX} accounts`,
    labelNames: ['account', 'name'] as const,
    registers: [registry],
  })
  return (accounts) => {
    problems.reset()
    info.reset()
    const named = new Map<string, number>()
    for (const { id, name, problems: found } of accounts) {
      const account = String(id)
      for (const { reason, status, muted } of found) {
        problems.set({ account, reason, ...(muted && { muted: 'yes' }) }, VALUES[status])
        const count = named.get(reason) ?? 0
        named.set(reason, count + 1)
        if (count < NAMED_MAX) info.set({ account, name: nameLabel(name) }, 1)
      }
    }
  }
}

// Labels that contain text of tenants, which alerts carry to chats and mailboxes.

/** Longer names add bytes to every scrape, but do not help to find an account. */
const NAME_MAX_LENGTH = 60

/** Chats read `<!here>`, `@channel` and code in backticks, and mail programs read tags. */
const LOOKALIKES: Record<string, string> = { '<': '‹', '>': '›', '@': '＠', '`': "'" }

/** A name in one line, in which nothing is a mention, a link or a tag. prom-client escapes quotes and backslashes. */
export const nameLabel = (name: string): string =>
  chatName(oneLine(name, NAME_MAX_LENGTH)).replace(/[<>@`]/g, (character) => LOOKALIKES[character] as string)

/** Only host and port: a path or query may contain a token. */
export const hostLabel = (url: string): string => (URL.canParse(url) ? new URL(url).host : '')
