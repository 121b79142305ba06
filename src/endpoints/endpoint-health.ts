/** The health and backlog of endpoints, for `doctor` and metrics. */
import { age } from '../http/format.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointSummary, listEndpoints } from './endpoints.ts'

const RESPONSE_LINE_MAX = 120

export type Severity = 'ok' | 'warning' | 'error'

type EndpointFinding = { endpointId: bigint; severity: Severity; message: string }

export async function examineEndpoints(database: Queryable): Promise<EndpointFinding[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.flatMap((endpoint) =>
    findingsOf(endpoint).map(([severity, message]) => ({
      ...{ endpointId: endpoint.id, severity },
      message: `${nameOf(endpoint)}: ${message}`,
    })),
  )
}

type Finding = [Severity, string]

function findingsOf(endpoint: EndpointSummary): Finding[] {
  const { id, failed, unknownEvents: unknown } = endpoint
  const failures = `deliveries that failed for 24 hours: ${countText(failed, endpoint)}; when the receiver works, run oa-audience endpoints retry ${id}`
  const events = `event types that do not exist: ${unknown.join(', ')}; run oa-audience endpoints update ${id} --events LIST`
  const findings = [
    stateOf(endpoint),
    ...(failed === 0 ? [] : [['warning', failures] as Finding]),
    ...(unknown.length === 0 ? [] : [['warning', events] as Finding]),
  ]
  return findings.filter(([severity]) => severity !== 'ok' || findings.length === 1)
}

function stateOf(endpoint: EndpointSummary): Finding {
  const { id, status, state, pending, lastAnswer, oldestPendingSeconds } = endpoint
  if (pending === 0) return ['ok', status === 'active' ? 'nothing waits' : `${status}, nothing waits`]
  const backlog = `pending deliveries: ${countText(pending, endpoint)}, the oldest for ${age(oldestPendingSeconds ?? 0)}`
  const response = lastAnswer && responseLine(lastAnswer.status, lastAnswer.text)
  if (status !== 'active') {
    const reason = lastAnswer?.status === 410 ? ` after the response "${response}"` : ''
    return ['warning', `${status}${reason}; ${backlog}; run oa-audience endpoints resume ${id}, or remove it`]
  }
  const fix = `fix the endpoint, or run oa-audience endpoints pause ${id}`
  if (state === 'failing') return ['error', `fails with "${response}"; ${backlog}; ${fix}`]
  if (state !== 'slow') return ['ok', backlog]
  return ['warning', `${backlog}; the receiver is slower than its deliveries arrive, or no instance runs`]
}

/** `500 upstream timed out`, or why there was no response. */
export function responseLine(status: number | null, text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  const short = line.length > RESPONSE_LINE_MAX ? `${line.slice(0, RESPONSE_LINE_MAX)}…` : line
  return status === null ? short : `${status} ${short}`.trim()
}

export const countText = (count: number, { countedMax }: Pick<EndpointSummary, 'countedMax'>): string =>
  count < countedMax ? String(count) : `${count}+`

const nameOf = ({ name, accountId }: EndpointSummary): string =>
  `${name === '' ? 'no name' : name} (account ${accountId})`

export async function listBacklogs(database: Queryable): Promise<EndpointSummary[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.filter(({ pending, failed }) => pending > 0 || failed > 0)
}
