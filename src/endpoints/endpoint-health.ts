/** The health and backlog of endpoints, for `doctor` and metrics. */
import { age } from '../http/format.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { COUNTED_MAX, type EndpointSummary, listEndpoints } from './endpoints.ts'

const RESPONSE_LINE_MAX = 120

export type Severity = 'ok' | 'warning' | 'error'

type EndpointFinding = { endpointId: bigint; severity: Severity; message: string }

export async function examineEndpoints(database: Queryable): Promise<EndpointFinding[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.flatMap((endpoint) => {
    const problems = [stateOf(endpoint), failuresOf(endpoint), unknownEventsOf(endpoint)].filter(
      (finding) => finding !== null,
    )
    const ok = { severity: 'ok' as const, message: `${nameOf(endpoint)}: nothing waits` }
    return (problems.length === 0 ? [ok] : problems).map((finding) => ({
      endpointId: endpoint.id,
      ...finding,
    }))
  })
}

type Problem = Omit<EndpointFinding, 'endpointId'>

function stateOf(endpoint: EndpointSummary): Problem | null {
  const { id, status, state, pending, lastAnswer, oldestPendingSeconds } = endpoint
  if (pending === 0 && status === 'active') return null
  const backlog = `pending deliveries: ${countText(pending)}, the oldest for ${age(oldestPendingSeconds ?? 0)}`
  const response = lastAnswer && responseLine(lastAnswer.status, lastAnswer.text)
  if (status !== 'active') {
    if (pending === 0) return { severity: 'ok', message: `${nameOf(endpoint)}: ${status}, nothing waits` }
    const reason = lastAnswer?.status === 410 ? ` after the response "${response}"` : ''
    const message = `${nameOf(endpoint)}: ${status}${reason}; ${backlog}; run oa-audience endpoints resume ${id}, or remove it`
    return { severity: 'warning', message }
  }
  if (state === 'failing') {
    const message = `${nameOf(endpoint)}: fails with "${response}"; ${backlog}; fix the endpoint, or run oa-audience endpoints pause ${id}`
    return { severity: 'error', message }
  }
  if (state !== 'slow') return null
  const message = `${nameOf(endpoint)}: ${backlog}; the receiver is slower than its deliveries arrive, or no instance runs`
  return { severity: 'warning', message }
}

function failuresOf(endpoint: EndpointSummary): Problem | null {
  const { id, failed } = endpoint
  if (failed === 0) return null
  const message = `${nameOf(endpoint)}: deliveries that failed for 24 hours: ${countText(failed)}; when the receiver works, run oa-audience endpoints retry ${id}`
  return { severity: 'warning', message }
}

function unknownEventsOf(endpoint: EndpointSummary): Problem | null {
  const { id, unknownEvents } = endpoint
  if (unknownEvents.length === 0) return null
  const message = `${nameOf(endpoint)}: event types that do not exist: ${unknownEvents.join(', ')}; run oa-audience endpoints update ${id} --events LIST`
  return { severity: 'warning', message }
}

/** `500 upstream timed out`, or why there was no response. */
export function responseLine(status: number | null, text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  const short = line.length > RESPONSE_LINE_MAX ? `${line.slice(0, RESPONSE_LINE_MAX)}…` : line
  return status === null ? short : `${status} ${short}`.trim()
}

export const countText = (count: number): string => (count < COUNTED_MAX ? String(count) : `${count}+`)

const nameOf = ({ name, accountId }: EndpointSummary): string =>
  `${name === '' ? 'no name' : name} (account ${accountId})`

export async function listBacklogs(database: Queryable): Promise<EndpointSummary[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.filter(({ pending, failed }) => pending > 0 || failed > 0)
}
