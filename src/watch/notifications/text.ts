/** The English text of a notification. Its first line says what has happened, and to how many accounts. */

import { age } from '../../http/format.ts'
import { oneLine } from '../../http/one-line.ts'
import type { Reason } from '../account-status.ts'
import { type ExplainedProblem, explainForMany, explainProblem } from '../problem-commands.ts'
import { PROBLEM_TEXTS } from '../problem-texts.ts'
import type { Notification, NotifiedAccount } from './content.ts'

const NAME_MAX_LENGTH = 60
/** The message of a check may quote a URL. */
const SENTENCE_MAX_LENGTH = 300
/** Accounts that a text lists. Then it stays below 4,000 characters, which every chat accepts: 10 × (60 + 60 + 200) + 800. */
const LISTED_MAX = 10
const LISTED_SENTENCE_MAX_LENGTH = 200

/** Problems in a few words, for the first lines of messages: `Cafe Alpha is broken: suspended by LINE`. */
const REASON_TITLES: Record<Reason, string> = {
  no_channel_secret: 'no channel secret',
  suspended: 'suspended by LINE',
  token_refused: 'LINE refuses the credentials',
  other_account: 'credentials of another account',
  webhook_elsewhere: 'the webhook URL points to another service',
  webhook_inactive: '"Use webhook" is off',
  webhook_test_failed: "LINE's webhook test failed",
  line_signature_refused: 'deliveries of LINE have wrong signatures',
  foreign_destination: 'deliveries are for another bot',
  chat_signature_refused: 'callbacks of the support chat have wrong signatures',
  line_signature_doubtful: 'some deliveries of LINE have wrong signatures',
  deliveries_missing: 'LINE did not deliver all follows and blocks',
  deliveries_failed: 'this service refused deliveries of LINE (503)',
  events_unapplied: 'events could not be applied',
  endpoint_failing: 'an endpoint does not accept deliveries',
  endpoint_failed: 'deliveries to endpoints failed permanently',
  token_expires: 'the channel access token expires',
  quota_used_up: 'no messages are left this month',
  not_verifiable: 'no access token, so no profiles and no verification',
  platform_unreachable: 'LINE does not respond',
  never_delivered: 'LINE has delivered nothing',
  unusually_quiet: 'unusually quiet',
  silent_for_days: 'no deliveries for days',
}

interface TextOptions {
  /** null: no links */
  consoleUrl: string | null
  /** make text harmless where it is shown; links are left as they are */
  safeName: (name: string) => string
  safeLine: (line: string) => string
}

/** Where a line is shown as it is. */
export const UNCHANGED = { safeName: (name: string) => name, safeLine: (line: string) => line }

/** Returns the lines of the text. */
export function writeLines(
  notification: Notification,
  { consoleUrl, safeName, safeLine }: TextOptions,
): string[] {
  const named = withNames(notification, safeName)
  const lines = [subjectOf(named), ...detailsOf(named)].map((line) =>
    safeLine(oneLine(line, SENTENCE_MAX_LENGTH)),
  )
  const link = linkOf(notification, consoleUrl)
  return link === null ? lines : [...lines, link]
}

/** Text that an operator reads in the console. */
export const plainText = (notification: Notification): string =>
  writeLines(notification, { consoleUrl: null, ...UNCHANGED }).join('\n')

/** Replaces names by short ones in one line. */
export const withNames = (notification: Notification, safeName = UNCHANGED.safeName): Notification => ({
  ...notification,
  accounts: notification.accounts.map((account) => ({
    ...account,
    name: safeName(nameOf(account)),
    organizationName: safeName(oneLine(account.organizationName, NAME_MAX_LENGTH)),
  })),
})

/** The page of the only account, or the list of all accounts. */
export function linkOf(
  { accounts: [first], accountCount }: Pick<Notification, 'accounts' | 'accountCount'>,
  consoleUrl: string | null,
): string | null {
  if (consoleUrl === null) return null
  const isOne = first !== undefined && accountCount === 1
  return isOne ? `${consoleUrl}/accounts/${first.id}` : `${consoleUrl}/`
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

/** @param notification of withNames */
export function subjectOf(notification: Notification): string {
  const { facts, writtenMs } = notification
  switch (notification.kind) {
    case 'problem':
      return `${accountsOf(notification)} ${stateOf(notification, '')}${titleOf(notification)}`
    case 'reminder':
      return `Reminder: ${accountsOf(notification)} ${stateOf(notification, 'still ')}${titleOf(notification)}`
    case 'recovery':
      return recoveryOf(notification)
    case 'platform_down':
      return `LINE does not respond: ${facts.accounts === 1 ? 'the check of the only account fails' : `the checks of all ${facts.accounts ?? ''} accounts fail`}`
    case 'platform_up':
      return `LINE responds again${after(facts.since, Date.parse(facts.until ?? '') || writtenMs)}`
    case 'test':
      return 'Test message of oa-audience'
    default:
      return `Notification: ${notification.kind satisfies never}`
  }
}

/** `Cafe Alpha`, `3 accounts`, `All 200 accounts` */
function accountsOf({ accounts: [first], accountCount, coveredCount, kind }: Notification): string {
  if (first !== undefined && accountCount === 1) return first.name
  if (accountCount !== coveredCount) return counted(accountCount)
  return `${kind === 'reminder' ? 'all' : 'All'} ${counted(accountCount)}`
}

const counted = (count: number): string => `${count} ${count === 1 ? 'account' : 'accounts'}`

/** `is broken`, `are still degraded`, `still have problems (3 broken)` */
function stateOf({ accounts: [first], accountCount, brokenCount }: Notification, still: string): string {
  if (accountCount === 1) return `is ${still}${first?.after ?? 'broken'}`
  if (brokenCount === accountCount) return `are ${still}broken`
  return brokenCount === 0 ? `are ${still}degraded` : `${still}have problems (${brokenCount} broken)`
}

/** The problem in a few words, unless the accounts have different ones. */
function titleOf(notification: Notification): string {
  const reason = notification.reason ?? sharedReason(notification)
  const titles: Record<string, string> = REASON_TITLES
  return reason !== null && Object.hasOwn(titles, reason) ? `: ${titles[reason]}` : ''
}

function sharedReason({ accounts, accountCount }: Notification): string | null {
  const reason = accounts[0]?.problem?.reason ?? null
  const isShared =
    accounts.length === accountCount && accounts.every(({ problem }) => problem?.reason === reason)
  return isShared ? reason : null
}

function recoveryOf(notification: Notification): string {
  const { accounts, accountCount, writtenMs } = notification
  const [first] = accounts
  const had = `${first?.before ?? 'broken'}${titleOf(notification)}`
  if (accountCount === 1) {
    return `${accountsOf(notification)} has recovered${after(first?.since, writtenMs)} (was ${had})`
  }
  return `${accountsOf(notification)} have recovered (were ${had})`
}

function after(since: string | undefined, untilMs: number): string {
  const seconds = (untilMs - Date.parse(since ?? '')) / 1000
  return seconds >= 0 ? ` after ${age(seconds)}` : ''
}

function detailsOf(notification: Notification): string[] {
  const { facts, kind } = notification
  switch (kind) {
    case 'problem':
    case 'reminder':
      return [
        ...(facts.cause === 'service'
          ? ['The cause is probably this service (oa-audience), not LINE. Run oa-audience doctor.']
          : []),
        ...explanationsOf(notification),
      ]
    case 'recovery':
      return notification.accountCount === 1 ? [] : listOf(notification, false)
    case 'platform_down':
      return [
        facts.cause === 'service'
          ? 'But LINE still delivers, so the cause is probably the network of this service (oa-audience). Allow outgoing HTTPS to LINE, and run oa-audience doctor.'
          : 'This service (oa-audience) and its database work, so the cause is probably LINE.',
        'Until LINE responds again, there are no messages about single accounts whose checks fail.',
      ]
    case 'platform_up':
      return ['Checks of the accounts have resumed. New problems are reported again.']
    case 'test':
      return ['A message arrives here when a LINE official account breaks, and when it has recovered.']
    default:
      return []
  }
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
  const isOneReason = notification.reason !== null || sharedReason(notification) !== null
  if (explained === null || first.problem === null || !isOneReason)
    return [FLEET_HINT, ...listOf(notification, true)]
  const hasOneMessage = accounts.every(
    (account) => explainAccount(account, notification)?.message === explained.message,
  )
  return [
    ...(hasOneMessage ? [explained.message] : []),
    `${explainForMany(first.problem, writtenMs).fix} ${FLEET_HINT}`,
    ...listOf(notification, !hasOneMessage),
  ]
}

const FLEET_HINT = 'The command oa-audience fleet says what to do for each account.'

/** @param withMessages whether the accounts have different problems */
function listOf(notification: Notification, withMessages: boolean): string[] {
  const { accounts, accountCount, coversAll } = notification
  const listed = accounts.slice(0, LISTED_MAX)
  const lines = listed.map((account) => {
    const organization = coversAll ? ` (${account.organizationName})` : ''
    const message = withMessages ? explainAccount(account, notification)?.message : undefined
    const sentence = message === undefined ? '' : `: ${oneLine(message, LISTED_SENTENCE_MAX_LENGTH)}`
    return `- ${account.name}${organization}${sentence}`
  })
  const others = accountCount - listed.length
  return others > 0 ? [...lines, `and ${others} more`] : lines
}
