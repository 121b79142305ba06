/** The text of a notification in the language of its channel. Its first line says what has happened, and to how many accounts. */
import { oneLine } from '../../observability/one-line.ts'
import { REASONS, type Reason } from '../account-status.ts'
import {
  explainForMany,
  explainProblem,
  formatsIn,
  type Language,
  messagesIn,
  textsIn,
} from '../languages.ts'
import { type ExplainedProblem, fill } from '../problem-texts.ts'
import type { Notification, NotifiedAccount } from './content.ts'

const NAME_MAX_LENGTH = 60
/** The message of a check may quote a URL. */
const SENTENCE_MAX_LENGTH = 300
/** A text stays below 4,000 characters, which every chat accepts: 10 accounts × (60 + 60 + 200) + 800. */
const LISTED_MAX = 10
const LISTED_SENTENCE_MAX_LENGTH = 200

const unchanged = (text: string) => text

/** @param safeName and safeLine make text harmless where it is shown; links are left as they are */
export function writeLines(
  notification: Notification,
  consoleUrl: string | null,
  safeName = unchanged,
  safeLine = unchanged,
): string[] {
  const named = withNames(notification, safeName)
  const lines = [subjectOf(named), ...detailsOf(named)].map((line) =>
    safeLine(oneLine(line, SENTENCE_MAX_LENGTH)),
  )
  const link = linkOf(notification, consoleUrl)
  return link === null ? lines : [...lines, link]
}

export const plainText = (notification: Notification): string => writeLines(notification, null).join('\n')

export const withNames = (notification: Notification, safeName = unchanged): Notification => ({
  ...notification,
  accounts: notification.accounts.map((account) => ({
    ...account,
    name: safeName(nameOf(account, notification.language)),
    organizationName: safeName(oneLine(account.organizationName, NAME_MAX_LENGTH)),
  })),
})

export function linkOf(
  { accounts: [first], accountCount }: Pick<Notification, 'accounts' | 'accountCount'>,
  consoleUrl: string | null,
): string | null {
  if (consoleUrl === null) return null
  const isOne = first !== undefined && accountCount === 1
  return isOne ? `${consoleUrl}/accounts/${first.id}` : `${consoleUrl}/`
}

export const nameOf = ({ name, id }: NotifiedAccount, language: Language = 'en'): string =>
  oneLine(name, NAME_MAX_LENGTH) || fill(messagesIn(language).unnamed, { id })

/** Null: the account has no problem, or one that this version does not know. */
export function explainAccount(
  { id, problem }: NotifiedAccount,
  { writtenMs, language }: Pick<Notification, 'writtenMs' | 'language'>,
): ExplainedProblem | null {
  if (problem === null || !Object.hasOwn(REASONS, problem.reason)) return null
  const { message, fix } = explainProblem(id, problem, writtenMs, language)
  return { message: oneLine(message, SENTENCE_MAX_LENGTH), fix: oneLine(fix, SENTENCE_MAX_LENGTH) }
}

/** @param notification of withNames */
export function subjectOf(notification: Notification): string {
  const { facts, writtenMs, kind, accounts, accountCount, brokenCount, language } = notification
  const messages = messagesIn(language)
  const [first] = accounts
  // Only a reminder is about accounts with several reasons.
  const isMixed = kind === 'reminder' && brokenCount > 0 && brokenCount < accountCount
  const values = {
    accounts: accountsOf(notification),
    count: String(accountCount),
    broken: String(brokenCount),
    state: stateIn(brokenCount === 0 ? 'degraded' : 'broken', notification),
  }
  switch (kind) {
    case 'problem':
    case 'reminder':
      return withReason(fill(messages[isMixed ? 'reminders' : kind], values), notification)
    case 'recovery': {
      const state = withReason(stateIn(first?.before, notification), notification)
      const duration = accountCount === 1 ? timeSince(first?.since, writtenMs, language) : null
      const template = duration === null ? messages.recovery : messages.recoveryAfter
      return fill(template, { ...values, state, duration: duration ?? '' })
    }
    case 'platform_down':
      return fill(messages.platformDown, { count: String(facts.accounts ?? 0) })
    case 'platform_up': {
      const duration = timeSince(facts.since, Date.parse(facts.until ?? '') || writtenMs, language)
      return duration === null ? messages.platformUp : fill(messages.platformUpAfter, { duration })
    }
    case 'test':
      return messages.test
    default:
      return `Notification: ${kind satisfies never}`
  }
}

function accountsOf({ accounts: [first], accountCount, coveredCount, language }: Notification): string {
  if (first !== undefined && accountCount === 1) return first.name
  const { all, some } = messagesIn(language)
  return fill(accountCount === coveredCount ? all : some, { count: String(accountCount) })
}

function stateIn(state = 'broken', { language }: Notification): string {
  const states: Record<string, string> = messagesIn(language).states
  return states[state] ?? state
}

/** With the problem in a few words, unless the accounts may have different ones. */
function withReason(text: string, notification: Notification): string {
  const { reasons } = textsIn(notification.language)
  const reason = reasonOf(notification)
  if (reason === null || !Object.hasOwn(reasons, reason)) return text
  return fill(messagesIn(notification.language).withReason, { text, reason: reasons[reason as Reason] })
}

const reasonOf = ({ reason, accounts: [first], accountCount }: Notification): string | null =>
  reason ?? (accountCount === 1 ? (first?.problem?.reason ?? null) : null)

function timeSince(since: string | undefined, untilMs: number, language: Language): string | null {
  const seconds = (untilMs - Date.parse(since ?? '')) / 1000
  return seconds >= 0 ? formatsIn(language, untilMs).duration(seconds) : null
}

function detailsOf(notification: Notification): string[] {
  const { facts, kind, language } = notification
  const messages = messagesIn(language)
  const isService = facts.cause === 'service'
  switch (kind) {
    case 'problem':
    case 'reminder': {
      const explanations = explanationsOf(notification)
      return isService ? [messages.causeIsService, ...explanations] : explanations
    }
    case 'recovery':
      return notification.accountCount === 1 ? [] : listOf(notification, false)
    case 'platform_down':
      return [isService ? messages.networkIsDown : messages.lineIsDown, messages.noSingleMessages]
    case 'platform_up':
      return [messages.resumed]
    case 'test':
      return [messages.testText]
    default:
      return []
  }
}

function explanationsOf(notification: Notification): string[] {
  const { accounts, accountCount, kind, writtenMs, language } = notification
  const messages = messagesIn(language)
  const [first] = accounts
  if (first === undefined) return []
  const explained = explainAccount(first, notification)
  if (accountCount === 1) {
    const time = first.since.slice(0, 16).replace('T', ' ')
    const since = kind === 'reminder' ? [fill(messages.since, { time })] : []
    return [...(explained === null ? [] : [explained.message, explained.fix]), ...since]
  }
  if (explained === null || first.problem === null || notification.reason === null)
    return [messages.fleet, ...listOf(notification, true)]
  const hasOneMessage = accounts.every(
    (account) => explainAccount(account, notification)?.message === explained.message,
  )
  return [
    ...(hasOneMessage ? [explained.message] : []),
    `${explainForMany(first.problem, writtenMs, language).fix} ${messages.fleet}`,
    ...listOf(notification, !hasOneMessage),
  ]
}

function listOf(notification: Notification, withMessages: boolean): string[] {
  const { accounts, accountCount, coversAll, language } = notification
  const listed = accounts.slice(0, LISTED_MAX)
  const lines = listed.map((account) => {
    const organization = coversAll ? ` (${account.organizationName})` : ''
    const message = withMessages ? explainAccount(account, notification)?.message : undefined
    const sentence = message === undefined ? '' : `: ${oneLine(message, LISTED_SENTENCE_MAX_LENGTH)}`
    return `- ${account.name}${organization}${sentence}`
  })
  const others = accountCount - listed.length
  const more = fill(messagesIn(language).more, { count: String(others) })
  return others > 0 ? [...lines, more] : lines
}
