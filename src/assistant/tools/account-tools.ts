/** The fleet, the problems of one account, and its numbers over time. */
import { Type } from '../../http/typebox.ts'
import { refuseInput } from '../../http/validate.ts'
import { ACCOUNT_STATUSES, type Problem, REASONS } from '../../operator/accounts/account-status.ts'
import { findVerification } from '../../operator/accounts/accounts.ts'
import {
  type FleetAccount,
  findFleetAccount,
  listAccountDays,
  listDeliveryHours,
  listFleet,
} from '../../operator/accounts/fleet.ts'
import { explainProblem } from '../../operator/accounts/problem-commands.ts'
import {
  After,
  absent,
  Id,
  idOf,
  Limit,
  limitOf,
  ofAccount,
  optionalId,
  requireAccount,
  tool,
} from '../tool.ts'
import { untrusted } from '../untrusted.ts'

const DAYS_MAX = 90
const DAYS_DEFAULT = 14
const NAME_MAX_LENGTH = 100

const oneOf = (values: readonly string[]) => Type.Union(values.map((value) => Type.Literal(value)))

export const listAccounts = tool(
  {
    name: 'list_accounts',
    title: 'List official accounts',
    description:
      'Lists LINE official accounts with their status, the worst first. Use it first to see what is wrong, and to find the id of an account. `reasons` are codes of problems; explain_account explains them.',
  },
  {
    status: Type.Optional(oneOf(ACCOUNT_STATUSES)),
    problem: Type.Optional(oneOf(Object.keys(REASONS))),
    organizationId: Type.Optional(Id('id of an organization')),
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: NAME_MAX_LENGTH,
        description: 'part of the name of the account',
      }),
    ),
    limit: Limit,
    after: After,
  },
  async ({ database, organizationIds }, input) => {
    const { status, problem, name, after = '0' } = input
    const organizationId = optionalId('organizationId', input.organizationId)
    const start = Number(idOf('after', after))
    if (start < 0) refuseInput('after', 'is not `next` of this list')
    const fleet = await listFleet(database, organizationIds)
    const matching = fleet.filter(
      (account) =>
        (status === undefined || account.status === status) &&
        (problem === undefined || account.problems.some(({ reason }) => reason === problem)) &&
        (organizationId === null || account.organizationId === organizationId) &&
        (name === undefined || account.name.toLowerCase().includes(name.toLowerCase())),
    )
    const end = start + limitOf(input)
    return {
      facts: { matching: matching.length, byStatus: countByStatus(matching) },
      list: {
        name: 'accounts',
        rows: matching.slice(start, end).map((account, index) => ({
          row: rowOf(account),
          cursor: String(start + index + 1),
        })),
        hasMore: end < matching.length,
      },
    }
  },
)

function countByStatus(accounts: FleetAccount[]): Record<string, number> {
  return Object.fromEntries(
    ACCOUNT_STATUSES.map((status) => [status, accounts.filter((each) => each.status === status).length]),
  )
}

const rowOf = (account: FleetAccount) => ({
  id: account.id,
  name: untrusted(account.name),
  organization: { id: account.organizationId, name: untrusted(account.organizationName) },
  status: account.status,
  reasons: account.problems.map(({ reason }) => reason),
  lastDeliveryAt: account.lastDeliveryAt,
  deliveries24h: account.deliveries24h,
  following: account.following,
  growth7d: account.growth7d,
})

export const explainAccount = tool(
  {
    name: 'explain_account',
    title: 'Explain the problems of an account',
    description:
      'Explains why one account is broken, degraded or quiet: each problem with its sentence, how to fix it (with the command that an operator can run), the last verification with LINE, and the facts behind it.',
  },
  { accountId: Id('id of the account') },
  async (context, { accountId }) => {
    const details = await requireAccount(context, accountId)
    const { database, organizationIds, now } = context
    const account = await findFleetAccount(database, organizationIds, details.id)
    if (account === null) throw absent('account')
    const verification = await findVerification(database, account.id)
    const { lastDeliveryAt, deliveries24h, events24h, failed24h, refused, lastRefusedAt, unapplied } = account
    const { verifiedAt, checkedAt, tokenExpiresAt, quotaLimit, quotaUsed, members, following, blocked } =
      account
    return {
      facts: {
        account: { ...rowOf(account), basicId: untrusted(account.basicId), addedAt: account.addedAt },
        problems: account.problems.map((problem) => problemOf(account, problem, now)),
        verification: verification && {
          verified: verification.verified,
          checkedAt: verification.checkedAt,
          checks: verification.checks.map(({ name, ok, reason = null, status = null, message }) => ({
            ...{ name, ok, reason, status, message: untrusted(message) },
          })),
        },
        deliveries: {
          lastDeliveryAt,
          deliveries24h,
          events24h,
          failed24h,
          refused,
          lastRefusedAt,
          unapplied,
        },
        platform: { verifiedAt, checkedAt, tokenExpiresAt, quotaLimit, quotaUsed },
        audience: { members, following, blocked, countedAt: account.countedAt },
        endpoints: { pending: account.endpointsPending, failed: account.endpointsFailed },
      },
      subject: ofAccount(details),
    }
  },
)

/** The sentences of some problems quote LINE. The fixes are our own. */
function problemOf({ id }: FleetAccount, problem: Problem, now: number) {
  const { message, fix } = explainProblem(id, problem, now)
  return { reason: problem.reason, status: problem.status, message: untrusted(message), fix }
}

export const showTrends = tool(
  {
    name: 'show_trends',
    title: 'Show the numbers of an account by day',
    description:
      'Shows one account by day, oldest first: deliveries and events received (days of UTC), and people who follow, have blocked, followed newly, returned and left (days of LINE, which begin at 15:00 UTC of the previous day). null: not counted on that day.',
  },
  {
    accountId: Id('id of the account'),
    days: Type.Optional(
      Type.Integer({ minimum: 1, maximum: DAYS_MAX, description: `days (default ${DAYS_DEFAULT})` }),
    ),
  },
  async (context, { accountId, days = DAYS_DEFAULT }) => {
    const account = await requireAccount(context, accountId)
    const { database } = context
    const deliveries = deliveriesByDay(await listDeliveryHours(database, account.id, days))
    const members = new Map(
      (await listAccountDays(database, account.id, days)).map(({ day, ...counts }) => [day, counts]),
    )
    const dates = [...new Set([...deliveries.keys(), ...members.keys()])].sort()
    const rows = dates.map((day) => ({
      row: { day, deliveries: deliveries.get(day) ?? null, members: members.get(day) ?? null },
      cursor: null,
    }))
    return {
      facts: { accountId: account.id, days },
      list: { name: 'byDay', rows, hasMore: false },
      subject: ofAccount(account),
    }
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
