/** Tools about accounts: the fleet, the problems of one account, its numbers over time, and one of its people. */
import { findVerification } from '../accounts/accounts.ts'
import type { Member } from '../audience/member.ts'
import {
  findMember,
  memberTimeline,
  readTimelinePosition,
  type TimelineEntry,
} from '../audience/member-details.ts'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { parsePathId } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { refuseInput, StorableText } from '../http/validate.ts'
import { Default, Id } from '../operations/fields.ts'
import { ACCOUNT_STATUSES, type FleetAccount, REASONS } from '../watch/account-status.ts'
import { listAccountDays, listDeliveryHours, listFleet } from '../watch/fleet.ts'
import { findFleetAccount } from '../watch/fleet-facts.ts'
import { explainProblem } from '../watch/languages.ts'
import {
  AFTER,
  absent,
  accountTool,
  columnsOf,
  PAGE,
  personal,
  type ToolContext,
  tool,
  untrusted,
} from './tool.ts'

const DAYS_MAX = 90
const DAYS_DEFAULT = 14
const NAME_MAX_LENGTH = 100
const TAGS_MAX = 50

export const listAccounts = tool(
  {
    name: 'list_accounts',
    title: 'List official accounts',
    description:
      'Lists LINE official accounts with their status, the worst first. Use it first to see what is wrong, and to find the id of an account. `reasons` are codes of problems; explain_account explains them.',
  },
  {
    status: Type.Optional(Type.Enum([...ACCOUNT_STATUSES])),
    problem: Type.Optional(Type.Enum(Object.keys(REASONS))),
    organizationId: Type.Optional(Id('id of an organization')),
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: NAME_MAX_LENGTH,
        description: 'part of the name of the account',
      }),
    ),
    ...PAGE,
  },
  async ({ database, organizationIds }, input) => {
    const { status, problem, organizationId, name, limit, after = 0n } = input
    const start = Number(after)
    if (start < 0) refuseInput('after', 'is not `next` of this list')
    const fleet = await listFleet(database, organizationIds)
    const matching = fleet.filter(
      (account) =>
        (status === undefined || account.status === status) &&
        (problem === undefined || account.problems.some(({ reason }) => reason === problem)) &&
        (organizationId === undefined || account.organizationId === organizationId) &&
        (name === undefined || account.name.toLowerCase().includes(name.toLowerCase())),
    )
    const end = start + limit
    const countOf = (of: string) => matching.filter((account) => account.status === of).length
    const byStatus = Object.fromEntries(ACCOUNT_STATUSES.map((each) => [each, countOf(each)]))
    const accounts = matching.slice(start, end).map(rowOf)
    const next = end < matching.length ? String(end) : null
    return { facts: { matching: matching.length, byStatus, accounts, next } }
  },
)

const rowOf = (account: FleetAccount) => ({
  ...columnsOf(account, 'id', 'status', 'lastDeliveryAt', 'deliveries24h', 'following', 'growth7d'),
  name: untrusted(account.name),
  organization: { id: account.organizationId, name: untrusted(account.organizationName) },
  reasons: account.problems.map(({ reason }) => reason),
})

export const explainAccount = accountTool(
  {
    name: 'explain_account',
    title: 'Explain the problems of an account',
    description:
      'Explains why one account is broken, degraded or quiet: each problem with its sentence, how to fix it (with the command that an operator can run), the last verification with LINE, and the facts behind it.',
  },
  {},
  async ({ database, organizationIds }, { id }) => {
    const account = await findFleetAccount(database, organizationIds, id)
    if (account === null) throw absent('account')
    const verification = await findVerification(database, id)
    const now = Date.now()
    return {
      facts: {
        account: { ...rowOf(account), basicId: untrusted(account.basicId), addedAt: account.addedAt },
        // The sentences of some problems quote LINE. The fixes are our own.
        problems: account.problems.map((problem) => {
          const { message, fix } = explainProblem(id, problem, now)
          return { reason: problem.reason, status: problem.status, message: untrusted(message), fix }
        }),
        verification: verification && {
          ...columnsOf(verification, 'verified', 'checkedAt'),
          checks: verification.checks.map(({ name, ok, reason = null, status = null, message }) => ({
            name,
            ok,
            reason,
            status,
            message: untrusted(message),
          })),
        },
        deliveries: {
          ...columnsOf(account, 'lastDeliveryAt', 'deliveries24h', 'events24h', 'failed24h'),
          ...columnsOf(account, 'refused', 'lastRefusedAt', 'unapplied'),
        },
        platform: columnsOf(account, 'verifiedAt', 'checkedAt', 'tokenExpiresAt', 'quotaLimit', 'quotaUsed'),
        audience: columnsOf(account, 'members', 'following', 'blocked', 'countedAt'),
        endpoints: { pending: account.endpointsPending, failed: account.endpointsFailed },
      },
    }
  },
)

export const showTrends = accountTool(
  {
    name: 'show_trends',
    title: 'Show the numbers of an account by day',
    description:
      'Shows one account by day, oldest first: deliveries and events received (days of UTC), and people who follow, have blocked, followed newly, returned and left (days of LINE, which begin at 15:00 UTC of the previous day). null: not counted on that day.',
  },
  {
    days: Default(Type.Integer({ minimum: 1, maximum: DAYS_MAX }), DAYS_DEFAULT),
  },
  async ({ database }, { id }, { days }) => {
    const deliveries = deliveriesByDay(await listDeliveryHours(database, id, days))
    const counted = await listAccountDays(database, id, days)
    const members = new Map(counted.map(({ day, ...counts }) => [day, counts]))
    const dates = [...new Set([...deliveries.keys(), ...members.keys()])].sort()
    const byDay = dates.map((day) => ({
      day,
      deliveries: deliveries.get(day) ?? null,
      members: members.get(day) ?? null,
    }))
    return { facts: { accountId: id, days, byDay } }
  },
)

type Hours = Awaited<ReturnType<typeof listDeliveryHours>>
type Counts = Omit<Hours[number], 'hour'>

function deliveriesByDay(hours: Hours): Map<string, Counts> {
  const days = new Map<string, Counts>()
  for (const { hour, ...counts } of hours) {
    const day = hour.slice(0, 10)
    const sum = days.get(day)
    if (sum === undefined) days.set(day, counts)
    else for (const name of Object.keys(counts) as Array<keyof Counts>) sum[name] += counts[name]
  }
  return days
}

export const showPerson = accountTool(
  {
    name: 'show_person',
    title: 'Show a person of an account',
    description:
      'Shows one person by the id that you were given: relationship to the account, counts, and what happened, newest first. Names, tags and other personal text are masked unless the operator decided otherwise. The contents of messages are never shown.',
  },
  {
    id: StorableText({
      minLength: 1,
      maxLength: USER_ID_MAX_LENGTH,
      description: "the person's user id of LINE, or the id of the member",
    }),
    ...PAGE,
    after: Type.Optional(Type.String({ maxLength: 64, description: AFTER })),
  },
  async (context, { id: accountId }, input) => {
    const { database } = context
    const member = await findMember(database, accountId, input.id, parsePathId(input.id))
    if (member === null) throw absent('person of this account')
    const after = input.after === undefined ? null : readTimelinePosition('after', input.after)
    const { entries, next } = await memberTimeline(database, accountId, member, input.limit, after)
    return {
      facts: {
        accountId,
        member: memberOf(member, context),
        timeline: entries.map((entry) => entryOf(entry, context)),
        next,
      },
      object: { kind: 'member', id: BigInt(member.id) },
    }
  },
)

const memberOf = (member: Member, context: ToolContext) => ({
  ...columnsOf(member, 'id', 'relationship', 'followedAt', 'blockedAt', 'firstSeenAt', 'lastSeenAt'),
  ...columnsOf(member, 'eventCount', 'version', 'createdAt', 'updatedAt'),
  displayName: personal(member.displayName, context),
  externalId: personal(member.externalId, context),
  tags: member.tags.slice(0, TAGS_MAX).map((tag) => personal(tag, context)),
  attributes: personal(JSON.stringify(member.attributes), context),
  conversation: member.conversation && {
    status: personal(member.conversation.status, context),
    updatedAt: member.conversation.updatedAt,
  },
})

/** Without the values of an edit. */
function entryOf({ at, source, kind, effect, eventId }: TimelineEntry, context: ToolContext) {
  const entry = { at, source, kind: untrusted(kind), eventId, effect: effect.kind }
  if (effect.kind === 'not_applied') return { ...entry, reason: untrusted(effect.failure) }
  if (effect.kind !== 'edited') return entry
  const { fields, by } = effect
  if (by === null) return { ...entry, fields, by: null }
  if ('actor' in by) return { ...entry, fields, by: { actor: personal(by.actor, context) } }
  return { ...entry, fields, by: { keyId: by.keyId, clientName: untrusted(by.clientName) } }
}
