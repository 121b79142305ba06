/** Outgoing webhooks, their deliveries, and events that could not be applied. */

import { INT64_MIN } from '../../http/path-id.ts'
import { Type } from '../../http/typebox.ts'
import { listAttempts } from '../../operator/endpoints/endpoint-history.ts'
import {
  type EndpointSummary,
  findEndpoint,
  listEndpoints,
  pageDeliveries,
} from '../../operator/endpoints/endpoints.ts'
import { listFailureReasons, listUnappliedEvents } from '../../operator/events.ts'
import {
  After,
  absent,
  beforeId,
  Id,
  idOf,
  Limit,
  limitOf,
  ofAccount,
  optionalAccount,
  pageOf,
  requireAccount,
  tool,
} from '../tool.ts'
import { personal, untrusted } from '../untrusted.ts'

const ATTEMPTS_MAX = 20
const REASONS_MAX = 20

export const showEndpoints = tool(
  {
    name: 'list_endpoints',
    title: 'List endpoints of outgoing webhooks',
    description:
      'Lists the endpoints to which events and changes of members are sent: status, deliveries that wait or failed, and the last response. Counts stop at 10,000. Only the host of the address is shown.',
  },
  { accountId: Type.Optional(Id('only endpoints of this account: its id')), limit: Limit, after: After },
  async (context, input) => {
    const account = await optionalAccount(context, input.accountId)
    const { database, organizationIds, showPersonalData } = context
    const limit = limitOf(input)
    const afterId = input.after === undefined ? INT64_MIN : idOf('after', input.after)
    const endpoints = await listEndpoints(database, organizationIds, account?.id ?? null, {
      afterId,
      limit: limit + 1,
    })
    return {
      facts: {},
      list: pageOf('endpoints', endpoints, limit, (endpoint) => endpointOf(endpoint, showPersonalData)),
      ...(account && { subject: ofAccount(account) }),
    }
  },
)

const endpointOf = (endpoint: EndpointSummary, showPersonalData: boolean) => ({
  id: endpoint.id,
  account: { id: endpoint.accountId, name: untrusted(endpoint.accountName) },
  name: untrusted(endpoint.name),
  // The path of an address may be a token.
  host: untrusted(URL.parse(endpoint.url)?.host ?? null),
  format: endpoint.format,
  status: endpoint.status,
  isRotating: endpoint.isRotating,
  createdAt: endpoint.createdAt,
  pending: endpoint.pending,
  failed: endpoint.failed,
  oldestPendingSeconds: endpoint.oldestPendingSeconds,
  lastResponse: endpoint.lastAnswer && {
    at: endpoint.lastAnswer.at,
    ...responseOf(endpoint.lastAnswer.status, endpoint.lastAnswer.text, showPersonalData),
  },
})

/** A receiver may repeat what it received in its response. Without a response, the text is the reason. */
const responseOf = (status: number | null, text: string | null, showPersonalData: boolean) => ({
  status,
  text: status === null ? untrusted(text) : personal(text, showPersonalData),
})

export const listDeliveries = tool(
  {
    name: 'list_deliveries',
    title: 'List deliveries to an endpoint',
    description:
      'Lists the failed (or waiting) deliveries of one endpoint, oldest first, with the last response of each, and the last refused attempts. The contents of deliveries are never shown.',
  },
  {
    endpointId: Id('id of the endpoint'),
    status: Type.Optional(Type.Union([Type.Literal('failed'), Type.Literal('pending')])),
    limit: Limit,
    after: After,
  },
  async (context, input) => {
    const { database, organizationIds, showPersonalData } = context
    const endpoint = await findEndpoint(database, organizationIds, idOf('endpointId', input.endpointId))
    if (endpoint === null) throw absent('endpoint')
    const account = await requireAccount(context, String(endpoint.accountId))
    const { status = 'failed' } = input
    const after = input.after === undefined ? null : { dueUs: 0n, id: idOf('after', input.after) }
    const limit = limitOf(input)
    const page = await pageDeliveries(database, endpoint.id, status, after, limit)
    const attempts = (await listAttempts(database, endpoint.id)).slice(0, ATTEMPTS_MAX)
    return {
      facts: {
        endpoint: endpointOf(endpoint, showPersonalData),
        attempts: attempts.map(({ reason, responseText: _, ...attempt }) => ({
          ...attempt,
          reason: untrusted(reason),
        })),
      },
      list: {
        name: 'deliveries',
        rows: page.deliveries.map(({ lastStatus, lastAnswer, ...delivery }) => ({
          row: { ...delivery, lastResponse: responseOf(lastStatus, lastAnswer, showPersonalData) },
          // Pending deliveries have no further page, because their order changes with each attempt.
          cursor: status === 'failed' ? String(delivery.id) : null,
        })),
        hasMore: page.next !== null,
      },
      subject: { ...ofAccount(account), object: { kind: 'endpoint', id: endpoint.id } },
    }
  },
)

export const listFailedEvents = tool(
  {
    name: 'list_failed_events',
    title: 'List events that could not be applied',
    description:
      'Lists received events that are stored but could not be applied to members, newest first, with the reason of each, and the most frequent reasons. The contents of events are never shown.',
  },
  { accountId: Type.Optional(Id('only events of this account: its id')), limit: Limit, after: After },
  async (context, input) => {
    const account = await optionalAccount(context, input.accountId)
    const { database, organizationIds } = context
    const accountId = account?.id ?? null
    const limit = limitOf(input)
    const reasons = await listFailureReasons(database, organizationIds, accountId)
    const events = await listUnappliedEvents(
      database,
      organizationIds,
      { accountId, failure: null },
      { beforeId: beforeId(input.after), limit: limit + 1 },
    )
    return {
      facts: {
        reasons: reasons
          .slice(0, REASONS_MAX)
          .map(({ failure, count }) => ({ reason: untrusted(failure), count })),
      },
      list: pageOf('events', events, limit, ({ accountName, kind, failure, ...event }) => ({
        ...event,
        accountName: untrusted(accountName),
        kind: untrusted(kind),
        reason: untrusted(failure),
      })),
      ...(account && { subject: ofAccount(account) }),
    }
  },
)
