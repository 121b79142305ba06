/** Problems of accounts, and the frame of messages, in a language: texts, periods, and the command that fixes a problem. */
import { createRequire } from 'node:module'
import { age, periodOf } from '../http/times.ts'
import type { AccountId } from '../ids.ts'
import { isStoredToken, type Problem, type Reason, type ReasonFacts } from './account-status.ts'
import type messages from './message-texts.en.json'
import { describeProblem, type ExplainedProblem, fill, type ProblemTexts } from './problem-texts.ts'

export const LANGUAGES = ['en', 'ja', 'th', 'zh'] as const
export type Language = (typeof LANGUAGES)[number]

/** Node.js 20 warns about an import of JSON. */
const require = createRequire(import.meta.url)

export const textsIn = (language: Language): ProblemTexts => require(`./problem-texts.${language}.json`)

/** The frame of a message, which pages do not show. */
export const messagesIn = (language: Language): typeof messages => require(`./message-texts.${language}.json`)

/** @param now to which times are relative */
export function formatsIn(language: Language, now: number) {
  const locale = `${language === 'zh' ? 'zh-Hant-TW' : language}-u-nu-latn`
  const duration = (seconds: number) => {
    if (language === 'en') return age(seconds)
    const [count, unit] = periodOf(seconds)
    return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(count)
  }
  const relative = (iso: string) => {
    const seconds = (now - Date.parse(iso)) / 1000
    if (language === 'en') return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`
    const [count, unit] = periodOf(Math.abs(seconds))
    return new Intl.RelativeTimeFormat(locale).format(seconds < 0 ? count : -count, unit)
  }
  return { number: String, date: (day: string) => day, relative, duration }
}

/** Without a command, for several accounts. */
export const explainForMany = (problem: Problem, now: number, language: Language): ExplainedProblem =>
  describeProblem(textsIn(language), problem, formatsIn(language, now))

export function explainProblem(
  id: AccountId | string,
  problem: Problem,
  now: number,
  language: Language = 'en',
): ExplainedProblem {
  const { message, fix } = explainForMany(problem, now, language)
  const command = commandFor(id, problem)
  const { muted } = problem
  const { run } = messagesIn(language)
  return {
    message: muted === undefined ? message : `${message} Muted until ${muted.until}: ${muted.reason}`,
    fix: command === null ? fix : fill(run, { fix, command }),
  }
}

const UPDATE = 'oa-audience accounts update {id}'
const STORE_SECRET = `${UPDATE} --channel-secret -`
const STORE_CHANNEL = `${UPDATE} --channel-id ID --channel-secret -`
const STORE_TOKEN = `${UPDATE} --channel-access-token -`
const VERIFY = 'oa-audience accounts verify {id}'
const TEST = `${VERIFY} --test-webhook`

const COMMANDS: { [R in Reason]?: string | ((facts: ReasonFacts[R]) => string) } = {
  no_channel_secret: STORE_SECRET,
  token_refused: ({ check }) => (isStoredToken(check) ? STORE_TOKEN : STORE_CHANNEL),
  other_account: STORE_CHANNEL,
  webhook_test_failed: ({ check }) => (check.reason === 'test_signature_refused' ? STORE_SECRET : TEST),
  line_signature_refused: STORE_SECRET,
  foreign_destination: VERIFY,
  answered_elsewhere: TEST,
  chat_signature_refused: `${UPDATE} --chat-secret -`,
  line_signature_doubtful: STORE_SECRET,
  redelivery_off: `${VERIFY} --prove-redelivery`,
  duplicate_bot: 'oa-audience accounts show {otherId}',
  deliveries_failed: 'oa-audience doctor',
  events_unapplied: 'oa-audience events list --status failed --account {id}',
  endpoint_failing: 'oa-audience endpoints pause {endpointId}',
  endpoint_failed: 'oa-audience endpoints list --account {id}; oa-audience endpoints retry ID',
  token_expires: STORE_TOKEN,
  not_verifiable: ({ hasChannelId, hasChannelSecret }) =>
    `${UPDATE}${hasChannelId ? '' : ' --channel-id ID'}${hasChannelSecret ? '' : ' --channel-secret -'}`,
  platform_unreachable: 'oa-audience doctor',
  never_delivered: TEST,
  unusually_quiet: TEST,
  silent_for_days: TEST,
}

function commandFor(id: AccountId | string, { reason, facts }: Problem): string | null {
  const command = COMMANDS[reason] as string | ((facts: object) => string) | undefined
  if (command === undefined) return null
  const template = typeof command === 'string' ? command : command(facts)
  return fill(template, { id: String(id), ...(facts as Record<string, string>) })
}
