/** The activity log, and the health of the installation. */
import { Type } from '../../http/typebox.ts'
import { type Activity, listActivity } from '../../operator/list-activity.ts'
import { readTime } from '../../operator/read-time.ts'
import { After, beforeId, Id, Limit, limitOf, ofAccount, optionalAccount, pageOf, tool } from '../tool.ts'
import { personal, untrusted } from '../untrusted.ts'

/** Characters. Every action is shorter. */
const ACTION_MAX_LENGTH = 64
const FINDINGS_MAX = 200
const TIME_MAX_LENGTH = 40

const Time = Type.Optional(
  Type.String({
    maxLength: TIME_MAX_LENGTH,
    description: 'ISO 8601 with an offset, such as 2026-11-01T09:00:00Z',
  }),
)

export const showActivity = tool(
  {
    name: 'list_activity',
    title: 'List who changed what',
    description:
      'Lists the activity log, newest first: who changed which account, endpoint, client or member, and when. Use it to find what changed before a problem began. Calls of this server are in it as well.',
  },
  {
    accountId: Type.Optional(Id('only activity of this account: its id')),
    action: Type.Optional(
      Type.String({
        pattern: '^[a-z_.]+$',
        maxLength: ACTION_MAX_LENGTH,
        description: 'an action such as endpoint.paused, or its beginning, such as endpoint.',
      }),
    ),
    from: Time,
    to: Time,
    limit: Limit,
    after: After,
  },
  async (context, input) => {
    const account = await optionalAccount(context, input.accountId)
    const { database, organizationIds, showPersonalData } = context
    const limit = limitOf(input)
    const filter = {
      accountId: account?.id ?? null,
      operatorId: null,
      action: input.action ?? null,
      from: timeOf('from', input.from),
      to: timeOf('to', input.to),
    }
    const page = { beforeId: beforeId(input.after), limit: limit + 1 }
    const rows = await listActivity(database, organizationIds, filter, page)
    return {
      facts: {},
      list: pageOf('activity', rows, limit, (row) => activityOf(row, showPersonalData)),
      ...(account && { subject: ofAccount(account) }),
    }
  },
)

const timeOf = (field: string, text: string | undefined): string | null =>
  text === undefined ? null : new Date(readTime(field, text)).toISOString()

/** Values may be addresses or names of people, so all but numbers and booleans are personal text. */
function activityOf(activity: Activity, showPersonalData: boolean) {
  const { id, occurredAt, action, actorKind, operatorId, actor, objectKind, objectId, changes } = activity
  const values = Object.entries(changes).map(([field, value]) => ({
    field: untrusted(field),
    value:
      value === null || typeof value === 'number' || typeof value === 'boolean'
        ? value
        : personal(JSON.stringify(value), showPersonalData),
  }))
  return {
    ...{ id, occurredAt, action },
    by: { kind: actorKind, operatorId, name: personal(actor, showPersonalData) },
    object: { kind: objectKind, id: objectId },
    organization: { id: activity.organizationId, name: untrusted(activity.organizationName) },
    account: { id: activity.accountId, name: untrusted(activity.accountName) },
    changes: values,
  }
}

/** Accounts and endpoints have tools of their own, and a fleet has thousands. */
const HAS_OWN_TOOL = /^(account|endpoint) /

export const checkSystem = tool(
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
    return {
      facts: {
        accountsAndEndpoints: { errors: count('error'), warnings: count('warning') },
      },
      list: {
        name: 'findings',
        rows: own.slice(0, FINDINGS_MAX).map(({ check, severity, message }) => ({
          row: { check: untrusted(check), severity, message: untrusted(message) },
          cursor: null,
        })),
        hasMore: own.length > FINDINGS_MAX,
      },
    }
  },
)
