/** The tools of the assistant: reads of src/operations/, whose input is theirs. shown.ts selects what they return. */
import type { Finding } from '../errors.ts'
import { Type } from '../http/typebox.ts'
import { ACCOUNTS } from '../operations/accounts.ts'
import { ACTIVITY } from '../operations/activity.ts'
import { ENDPOINTS } from '../operations/endpoints.ts'
import { EVENTS } from '../operations/events.ts'
import { Default, type Fields, Id } from '../operations/fields.ts'
import { FLEET } from '../operations/fleet.ts'
import { MEMBERS } from '../operations/members.ts'
import type { Noun, Operation } from '../operations/operation.ts'
import type { NewActivity } from '../operators/activity.ts'
import type { DeliveryHour } from '../watch/fleet.ts'
import { explainProblem } from '../watch/languages.ts'

export interface Tool {
  name: string
  description: string
  /** Their results are shown together. */
  operations: Operation[]
  /** It shows the findings of doctor, which are of no single organization. */
  examinesSystem?: boolean
  /** input that the assistant does not choose */
  given?: Record<string, unknown>
  /** what is shown of what was read */
  parts?: (read: never) => object
  object?: (read: never) => Pick<NewActivity, 'object'>
}

const PAGE_MAX = 50
export const PAGE_DEFAULT = 20
const PAGE: Fields = {
  limit: Default(
    Type.Integer({ minimum: 1, maximum: PAGE_MAX, description: 'maximum number of rows' }),
    PAGE_DEFAULT,
  ),
  after: Type.Optional(Id('`next` of the page before, to read the following page')),
}

export const targetOf = ({ operations: [first] }: Tool): Noun | null => (first?.hasTarget ? first.noun : null)

/** All other arguments are refused. */
export function inputOf(tool: Tool): Fields {
  const { operations, given = {} } = tool
  const inputs: Fields = Object.assign({}, ...operations.map(({ input }) => input))
  const hasPages = 'after' in inputs || operations.some(({ way }) => way === 'list')
  const target = targetOf(tool)?.word
  const all = { ...(target && { [target]: Id(`id of the ${target}`) }), ...(hasPages && PAGE), ...inputs }
  return Object.fromEntries(Object.entries(all).filter(([name]) => !(name in given)))
}

/** Accounts and endpoints have tools of their own, and a fleet has thousands. */
const HAS_OWN_TOOL = /^(account|endpoint) /

function systemParts(all: Finding[]) {
  const others = all.filter(({ check }) => HAS_OWN_TOOL.test(check))
  const count = (severity: string) => others.filter((finding) => finding.severity === severity).length
  return {
    accountsAndEndpoints: { errors: count('error'), warnings: count('warning') },
    findings: all.filter((finding) => !others.includes(finding)),
  }
}

type Result<T extends { result?: unknown }> = NonNullable<T['result']>

/** The sentences of some problems quote LINE. The fixes are our own. */
const explained = ({ account, facts, verification }: Result<typeof ACCOUNTS.show>) => ({
  ...{ account, facts, verification },
  problems: facts.problems.map((problem) => ({
    ...problem,
    ...explainProblem(account.id, problem, Date.now()),
  })),
})

const trends = ({ hours, days }: Result<typeof ACCOUNTS.charts>) => ({
  deliveriesByDay: sumByDay(hours),
  membersByDay: days.slice(-PAGE_MAX),
})

function sumByDay(hours: DeliveryHour[]) {
  const days = new Map<string, Record<string, string | number>>()
  for (const { hour, ...counts } of hours) {
    const day = hour.slice(0, 10)
    const sum = days.get(day) ?? { day }
    for (const [name, count] of Object.entries(counts)) sum[name] = count + Number(sum[name] ?? 0)
    days.set(day, sum)
  }
  return [...days.values()]
}

const person = ({ member }: Result<typeof MEMBERS.find>) => ({
  object: { kind: 'member' as const, id: BigInt(member.id) },
})

export const TOOLS: readonly Tool[] = [
  {
    name: 'list_accounts',
    description:
      'Lists LINE official accounts with their status and their worst problem, the worst first. Use it first to see what is wrong, and to find the id of an account. explain_account explains the problems.',
    operations: [FLEET.list],
  },
  {
    name: 'explain_account',
    description:
      'Explains why one account is broken, degraded or quiet: each problem with its sentence, how to fix it (with the command that an operator can run), the last verification with LINE, and the facts behind it.',
    operations: [ACCOUNTS.show],
    parts: explained,
  },
  {
    name: 'show_trends',
    description:
      'Shows one account by day, oldest first: deliveries and events received in the last week (days of UTC), and people who follow, have blocked, followed newly, returned and left in the last 50 days (days of LINE, which begin at 15:00 UTC of the previous day). null: not counted on that day.',
    operations: [ACCOUNTS.charts],
    parts: trends,
  },
  {
    name: 'list_endpoints',
    description:
      'Lists the endpoints to which events and changes of members are sent: status, deliveries that wait or failed, and the last response. Counts stop at 10,000. Only the host of the address is shown.',
    operations: [ENDPOINTS.list],
  },
  {
    name: 'list_deliveries',
    description:
      'Lists the failed (or waiting) deliveries of one endpoint, oldest first, with the last response of each, and the last refused attempts. The contents of deliveries are never shown.',
    operations: [ENDPOINTS.deliveries, ENDPOINTS.history],
  },
  {
    name: 'list_failed_events',
    description:
      'Lists received events that are stored but could not be applied to members, newest first, with the reason of each, and the most frequent reasons. The contents of events are never shown.',
    operations: [EVENTS.list, EVENTS.reasons],
    given: { status: 'failed' },
  },
  {
    name: 'show_person',
    description:
      'Shows one person by the id that you were given: relationship to the account, counts, and what happened, newest first. Names, tags and other personal text are masked unless the operator decided otherwise. The contents of messages are never shown.',
    operations: [MEMBERS.find, MEMBERS.timeline],
    object: person,
  },
  {
    name: 'list_activity',
    description:
      'Lists the activity log, newest first: who changed which account, endpoint, client or member, and when. Use it to find what changed before a problem began. Calls of this server are in it as well.',
    operations: [ACTIVITY.list],
  },
  {
    name: 'check_system',
    description:
      'Checks the installation itself, as the command "oa-audience doctor" does: configuration, database, replication, Redis, LINE, clocks, encryption, notifications. It takes some seconds. For accounts and endpoints use list_accounts and list_endpoints.',
    operations: [],
    examinesSystem: true,
    parts: systemParts,
  },
]
