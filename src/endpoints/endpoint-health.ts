/** The health and backlog of endpoints, for `doctor` and metrics. */
import { type Finding, finding } from '../errors.ts'
import { age } from '../http/times.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type EndpointSummary, listEndpoints } from './endpoints.ts'

const RESPONSE_LINE_MAX = 120

export async function examineEndpoints(database: Queryable): Promise<Finding[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.flatMap(findingsOf)
}

function findingsOf(endpoint: EndpointSummary): Finding[] {
  const { id, accountId, name, failed, unknownEvents: unknown } = endpoint
  const found = [stateOf(endpoint)]
  if (failed > 0)
    found.push([
      'warning',
      `deliveries that failed for 24 hours: ${countText(failed, endpoint)}; when the endpoint works, run oa-audience endpoints retry ${id}`,
    ])
  if (unknown.length > 0)
    found.push([
      'warning',
      `event types that do not exist: ${unknown.join(', ')}; run oa-audience endpoints update ${id} --events LIST`,
    ])
  return found
    .filter(([severity]) => severity !== 'ok' || found.length === 1)
    .map(([severity, message]) =>
      finding[severity](
        `endpoint ${id}`,
        `${name === '' ? 'no name' : name} (account ${accountId}): ${message}`,
      ),
    )
}

function stateOf(endpoint: EndpointSummary): [Finding['severity'], string] {
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
  return ['warning', `${backlog}; the endpoint is slower than its deliveries arrive, or no instance runs`]
}

/** `500 upstream timed out`, or why there was no response. */
export function responseLine(status: number | null, text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  const short = line.length > RESPONSE_LINE_MAX ? `${line.slice(0, RESPONSE_LINE_MAX)}…` : line
  return status === null ? short : `${status} ${short}`.trim()
}

export const countText = (count: number, { countedMax }: Pick<EndpointSummary, 'countedMax'>): string =>
  count < countedMax ? String(count) : `${count}+`

export async function listBacklogs(database: Queryable): Promise<EndpointSummary[]> {
  const endpoints = await listEndpoints(database, ALL_ORGANIZATIONS, null)
  return endpoints.filter(({ pending, failed }) => pending > 0 || failed > 0)
}
