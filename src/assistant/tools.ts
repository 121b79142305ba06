/** All tools of the assistant, each of which only reads. Here: those of deliveries, events, activity and the installation. */
import { findAccountDetails } from '../accounts/accounts.ts'
import {
  type EndpointSummary,
  findEndpoint,
  listAttempts,
  listEndpoints,
  listDeliveries as readDeliveries,
} from '../endpoints/endpoints.ts'
import { INT64_MAX, INT64_MIN } from '../http/path-id.ts'
import { timeOrNull } from '../http/times.ts'
import { Type } from '../http/typebox.ts'
import { listAllEvents } from '../intake/list-events.ts'
import { listFailureReasons } from '../intake/stored-events.ts'
import { Default, Id } from '../operations/fields.ts'
import { type Activity, listActivity } from '../operators/list-activity.ts'
import { explainAccount, listAccounts, showPerson, showTrends } from './account-tools.ts'
import {
  columnsOf,
  listTool,
  PAGE,
  personal,
  type Tool,
  type ToolContext,
  textsOf,
  tool,
  untrusted,
} from './tool.ts'

const ATTEMPTS_MAX = 20
const REASONS_MAX = 20
/** Characters. Every action is shorter. */
const ACTION_MAX_LENGTH = 64
const FINDINGS_MAX = 50
const TIME_MAX_LENGTH = 40

const showEndpoints = listTool(
  {
    name: 'list_endpoints',
    title: 'List endpoints of outgoing webhooks',
    description:
      'Lists the endpoints to which events and changes of members are sent: status, deliveries that wait or failed, and the last response. Counts stop at 10,000. Only the host of the address is shown.',
  },
  'endpoints',
  {},
  {
    read: ({ database, organizationIds }, { accountId, after, limit }) =>
      listEndpoints(database, organizationIds, accountId, { afterId: after ?? INT64_MIN, limit }),
    show: endpointOf,
  },
)

function endpointOf(endpoint: EndpointSummary, context: ToolContext) {
  const { lastAnswer } = endpoint
  return {
    ...columnsOf(endpoint, 'id', 'format', 'status', 'isRotating', 'createdAt'),
    ...columnsOf(endpoint, 'pending', 'failed', 'oldestPendingSeconds'),
    account: { id: endpoint.accountId, name: untrusted(endpoint.accountName) },
    name: untrusted(endpoint.name),
    // The path of an address may be a token.
    host: untrusted(URL.parse(endpoint.url)?.host ?? null),
    lastResponse: lastAnswer && {
      at: lastAnswer.at,
      ...responseOf(lastAnswer.status, lastAnswer.text, context),
    },
  }
}

/** A receiver may repeat what it received in its response. Without a response, the text is the reason. */
const responseOf = (status: number | null, text: string | null, context: ToolContext) => ({
  status,
  text: status === null ? untrusted(text) : personal(text, context),
})

const listDeliveries = tool(
  {
    name: 'list_deliveries',
    title: 'List deliveries to an endpoint',
    description:
      'Lists the failed (or waiting) deliveries of one endpoint, oldest first, with the last response of each, and the last refused attempts. The contents of deliveries are never shown.',
  },
  {
    endpointId: Id('id of the endpoint'),
    status: Default(Type.Enum(['failed', 'pending']), 'failed'),
    ...PAGE,
  },
  async (context, { endpointId, status, limit, after }) => {
    const { database, organizationIds } = context
    const endpoint = await findEndpoint(database, organizationIds, endpointId)
    const found = await readDeliveries(database, endpoint.id, status, {
      limit: limit + 1,
      ...(after !== undefined && { afterId: after }),
    })
    const shown = found.slice(0, limit)
    const attempts = (await listAttempts(database, endpoint.id)).slice(0, ATTEMPTS_MAX)
    return {
      facts: {
        endpoint: endpointOf(endpoint, context),
        attempts: attempts.map((attempt) => ({
          ...columnsOf(attempt, 'startedAt', 'status', 'durationMs', 'events', 'attempt', 'deliveryId'),
          ...textsOf(attempt, 'reason'),
        })),
        deliveries: shown.map((delivery) => ({
          ...columnsOf(delivery, 'id', 'status', 'type', 'memberId', 'events', 'isReplay', 'attempts'),
          ...columnsOf(delivery, 'createdAt', 'dueAt', 'failedAt'),
          lastResponse: responseOf(delivery.lastStatus, delivery.lastAnswer, context),
        })),
        // Pending deliveries have no further page, because their order changes with each attempt.
        next: status === 'failed' && found.length > limit ? (shown.at(-1)?.id ?? null) : null,
      },
      account: await findAccountDetails(database, organizationIds, endpoint.accountId),
      object: { kind: 'endpoint', id: endpoint.id },
    }
  },
)

const listFailedEvents = listTool(
  {
    name: 'list_failed_events',
    title: 'List events that could not be applied',
    description:
      'Lists received events that are stored but could not be applied to members, newest first, with the reason of each, and the most frequent reasons. The contents of events are never shown.',
  },
  'events',
  {},
  {
    read: async ({ database, organizationIds }, { accountId, after, limit }) => {
      const filter = { status: 'failed' as const, ...(accountId !== null && { account: accountId }) }
      const before = after === null ? null : `0.${after}`
      return (await listAllEvents(database, organizationIds, filter, { before, limit })).events
    },
    show: (event) => ({
      ...columnsOf(event, 'id', 'accountId', 'source', 'occurredAt', 'receivedAt'),
      ...textsOf(event, 'accountName', 'kind'),
      reason: untrusted(event.failure),
    }),
    facts: async ({ database, organizationIds }, { accountId }) => {
      const reasons = await listFailureReasons(database, organizationIds, accountId)
      const shown = reasons.slice(0, REASONS_MAX)
      return { reasons: shown.map(({ failure, count }) => ({ reason: untrusted(failure), count })) }
    },
  },
)

const Time = Type.Optional(
  Type.String({
    maxLength: TIME_MAX_LENGTH,
    description: 'ISO 8601 with an offset, such as 2026-11-01T09:00:00Z',
  }),
)

const showActivity = listTool(
  {
    name: 'list_activity',
    title: 'List who changed what',
    description:
      'Lists the activity log, newest first: who changed which account, endpoint, client or member, and when. Use it to find what changed before a problem began. Calls of this server are in it as well.',
  },
  'activity',
  {
    action: Type.Optional(
      Type.String({
        pattern: '^[a-z_.]+$',
        maxLength: ACTION_MAX_LENGTH,
        description: 'an action such as endpoint.paused, or its beginning, such as endpoint.',
      }),
    ),
    from: Time,
    to: Time,
  },
  {
    read: ({ database, organizationIds }, { accountId, after, limit }, { action = null, ...input }) => {
      const [from, to] = [timeOrNull('from', input.from), timeOrNull('to', input.to)]
      const filter = { accountId, operatorId: null, action, from, to }
      return listActivity(database, organizationIds, filter, { beforeId: after ?? INT64_MAX, limit })
    },
    show: activityOf,
  },
)

/** Values may be addresses or names of people, so all but numbers and booleans are personal text. */
function activityOf(activity: Activity, context: ToolContext) {
  const shown = (value: unknown) =>
    value === null || typeof value === 'number' || typeof value === 'boolean'
      ? value
      : personal(JSON.stringify(value), context)
  const changes = Object.entries(activity.changes)
  return {
    ...columnsOf(activity, 'id', 'occurredAt', 'action'),
    by: {
      kind: activity.actorKind,
      operatorId: activity.operatorId,
      name: personal(activity.actor, context),
    },
    object: { kind: activity.objectKind, id: activity.objectId },
    organization: { id: activity.organizationId, name: untrusted(activity.organizationName) },
    account: { id: activity.accountId, name: untrusted(activity.accountName) },
    changes: changes.map(([field, value]) => ({ field: untrusted(field), value: shown(value) })),
  }
}

/** Accounts and endpoints have tools of their own, and a fleet has thousands. */
const HAS_OWN_TOOL = /^(account|endpoint) /

const checkSystem = tool(
  {
    name: 'check_system',
    title: 'Check the installation',
    description:
      'Checks the installation itself, as the command "oa-audience doctor" does: configuration, database, replication, Redis, LINE, clocks, encryption, notifications. It takes some seconds. For accounts and endpoints use list_accounts and list_endpoints.',
    isForAll: true,
  },
  {},
  async ({ examineSystem }) => {
    const findings = await examineSystem()
    const others = findings.filter(({ check }) => HAS_OWN_TOOL.test(check))
    const own = findings.filter(({ check }) => !HAS_OWN_TOOL.test(check))
    const count = (severity: string) => others.filter((finding) => finding.severity === severity).length
    const shown = own.slice(0, FINDINGS_MAX)
    return {
      facts: {
        accountsAndEndpoints: { errors: count('error'), warnings: count('warning') },
        findings: shown.map((finding) => ({
          severity: finding.severity,
          ...textsOf(finding, 'check', 'message'),
        })),
      },
    }
  },
)

export const TOOLS: readonly Tool[] = [
  listAccounts,
  explainAccount,
  showTrends,
  showEndpoints,
  listDeliveries,
  listFailedEvents,
  showPerson,
  showActivity,
  checkSystem,
]
