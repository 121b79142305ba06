/** The English text of a notification. Its first line says what has happened, and to how many accounts. */

import { type ExplainedProblem, explainForMany, explainProblem } from '../accounts/problem-commands.ts'
import { PROBLEM_TEXTS } from '../accounts/problem-texts.ts'
import { age } from '../format.ts'
import type { Notification, NotifiedAccount } from './content.ts'
import { REASON_TITLES } from './reason-titles.ts'
import { oneLine } from './safe-text.ts'

const NAME_MAX_LENGTH = 60
/** The message of a check may quote a URL. */
const SENTENCE_MAX_LENGTH = 300
/** Accounts that a text lists. Then it stays below 4,000 characters, which every chat accepts: 10 × (60 + 60 + 200) + 800. */
const LISTED_MAX = 10
const LISTED_SENTENCE_MAX_LENGTH = 200

export interface TextOptions {
  /** null: no links */
  consoleUrl: string | null
  /** makes text harmless where it is shown; links are left as they are */
  safe: (text: string) => string
}

/** Returns the lines of the text. */
export function writeLines(notification: Notification, { consoleUrl, safe }: TextOptions): string[] {
  const lines = [subjectOf(notification), ...detailsOf(notification)].map((line) =>
    safe(oneLine(line, SENTENCE_MAX_LENGTH)),
  )
  const link = linkOf(notification, consoleUrl)
  return link === null ? lines : [...lines, link]
}

/** Text that an operator reads in the console. */
export const plainText = (notification: Notification): string =>
  writeLines(notification, { consoleUrl: null, safe: (text) => text }).join('\n')

/** The page of the account, or the list of all accounts. */
export function linkOf(
  { accounts: [first], accountCount }: Pick<Notification, 'accounts' | 'accountCount'>,
  consoleUrl: string | null,
): string | null {
  if (consoleUrl === null) return null
  return first !== undefined && accountCount === 1 ? `${consoleUrl}/accounts/${first.id}` : `${consoleUrl}/`
}

export const nameOf = ({ name, id }: NotifiedAccount): string =>
  oneLine(name, NAME_MAX_LENGTH) || `Account ${id}`

/** What is wrong with one account, and how to fix it. Null: it has no problem, or one that this version does not know. */
export function explainAccount(
  { id, problem }: NotifiedAccount,
  { writtenMs }: Pick<Notification, 'writtenMs'>,
): ExplainedProblem | null {
  if (problem === null || !Object.hasOwn(PROBLEM_TEXTS, problem.reason)) return null
  const { message, fix } = explainProblem(id, problem, writtenMs)
  return { message: oneLine(message, SENTENCE_MAX_LENGTH), fix: oneLine(fix, SENTENCE_MAX_LENGTH) }
}

export function subjectOf(notification: Notification): string {
  const { facts, writtenMs } = notification
  switch (notification.kind) {
    case 'problem':
      return `${whoIs(notification)} ${statusOf(notification)}${titleOf(notification)}`
    case 'reminder':
      return `Reminder: ${whoIs(notification)} still ${statusOf(notification)}${titleOf(notification)}`
    case 'recovery':
      return recoveryOf(notification)
    case 'platform_down':
      return 'LINE does not respond: the checks of all accounts fail'
    case 'platform_up':
      return `LINE responds again${lasting(facts.since, Date.parse(facts.until ?? '') || writtenMs)}`
    case 'summary':
      return `Weekly summary: ${accountsText(facts.accounts ?? 0)}, ${facts.broken ?? 0} broken, ${facts.degraded ?? 0} degraded`
    case 'test':
      return 'Test message of oa-audience'
    default:
      return `Notification: ${notification.kind satisfies never}`
  }
}

/** `Cafe Alpha is`, `3 accounts are`, `All 200 accounts are` */
function whoIs(notification: Notification): string {
  return `${subjects(notification)} ${notification.accountCount === 1 ? 'is' : 'are'}`
}

function subjects({ accounts: [first], accountCount, coveredCount, kind }: Notification): string {
  if (first !== undefined && accountCount === 1) return nameOf(first)
  const isAll = accountCount > 1 && accountCount === coveredCount
  const all = kind === 'reminder' ? 'all' : 'All'
  return isAll ? `${all} ${accountCount} accounts` : accountsText(accountCount)
}

const accountsText = (count: number): string => `${count} ${count === 1 ? 'account' : 'accounts'}`

const statusOf = ({ accounts: [first] }: Notification): string => first?.after ?? 'broken'

function titleOf({ reason, accounts: [first] }: Notification): string {
  const known = reason ?? first?.problem?.reason ?? ''
  const titles: Record<string, string> = REASON_TITLES
  return Object.hasOwn(titles, known) ? `: ${titles[known]}` : ''
}

function recoveryOf(notification: Notification): string {
  const { accounts, accountCount } = notification
  const [first] = accounts
  const had = accountCount === 1 ? 'was' : 'were'
  const before = `${had} ${first?.before ?? 'broken'}${titleOf({ ...notification, accounts: [] })}`
  if (accounts.some(({ problem }) => problem?.status === 'degraded' || problem?.status === 'broken'))
    return `${whoIs(notification)} only ${statusOf(notification)} now (${before})`
  return `${subjects(notification)} ${accountCount === 1 ? 'has' : 'have'} recovered (${before})`
}

const lasting = (since: string | undefined, untilMs: number): string => {
  const seconds = (untilMs - Date.parse(since ?? '')) / 1000
  return seconds >= 0 ? `, after ${age(seconds)}` : ''
}

function detailsOf(notification: Notification): string[] {
  const { facts, kind } = notification
  switch (kind) {
    case 'problem':
    case 'reminder':
      return [...causeOf(facts), ...explanationsOf(notification)]
    case 'recovery':
      return explanationsOf(notification)
    case 'platform_down':
      return [
        'Deliveries may still arrive. Until LINE responds again, there are no messages about single accounts that it does not respond for.',
        ...(facts.cause === 'service'
          ? ['The cause is probably the network of this service. Allow outgoing HTTPS to LINE.']
          : []),
      ]
    case 'platform_up':
      return ['Accounts are checked again.']
    case 'summary':
      return [
        `Quiet: ${facts.quiet ?? 0}, ok: ${facts.ok ?? 0}. In this week, problems: ${facts.problems ?? 0}, recoveries: ${facts.recoveries ?? 0}.`,
        ...listOf(notification, true),
      ]
    case 'test':
      return ['Messages about official accounts arrive here.']
    default:
      return []
  }
}

function causeOf({ cause }: Notification['facts']): string[] {
  if (cause === 'service') return ['The cause is probably this service. Run oa-audience doctor.']
  if (cause === 'line') return ['So many accounts at once: the cause is probably LINE.']
  return []
}

function explanationsOf(notification: Notification): string[] {
  const { accounts, accountCount, kind, writtenMs } = notification
  const [first] = accounts
  if (first === undefined) return []
  const explained = explainAccount(first, notification)
  if (accountCount === 1) {
    const since = kind === 'reminder' ? [`Since ${first.since.slice(0, 16).replace('T', ' ')} UTC.`] : []
    return [...(explained === null ? [] : [explained.message, explained.fix]), ...since]
  }
  if (explained === null || first.problem === null) return listOf(notification, true)
  const isShared = accounts.every(
    (account) => explainAccount(account, notification)?.message === explained.message,
  )
  const { fix } = explainForMany(first.problem, writtenMs)
  return [
    ...(isShared ? [explained.message] : []),
    `${fix} The command oa-audience fleet shows what to run for each account.`,
    ...listOf(notification, !isShared),
  ]
}

/** @param withMessages whether the accounts have different problems */
function listOf(notification: Notification, withMessages: boolean): string[] {
  const { accounts, accountCount, coversAll } = notification
  const listed = accounts.slice(0, LISTED_MAX)
  const lines = listed.map((account) => {
    const organization = coversAll ? ` (${oneLine(account.organizationName, NAME_MAX_LENGTH)})` : ''
    const message = withMessages ? explainAccount(account, notification)?.message : undefined
    const sentence = message === undefined ? '' : `: ${oneLine(message, LISTED_SENTENCE_MAX_LENGTH)}`
    return `- ${nameOf(account)}${organization}${sentence}`
  })
  const others = accountCount - listed.length
  return others > 0 ? [...lines, `and ${others} more`] : lines
}
