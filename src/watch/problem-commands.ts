/**
 * Problems of accounts, and the frame of messages, in English for commands and else in the language of a channel: their texts, how they
 * write periods, and the command that fixes a problem.
 */
import { createRequire } from 'node:module'
import type { AccountId } from '../accounts/account.ts'
import { age, periodOf } from '../http/format.ts'
import { isStoredToken, type Problem } from './account-status.ts'
import type messages from './message-texts.en.json'
import {
  describeProblem,
  type ExplainedProblem,
  type Formats,
  fill,
  type ProblemTexts,
} from './problem-texts.ts'

export const LANGUAGES = ['en', 'ja', 'th', 'zh'] as const
export type Language = (typeof LANGUAGES)[number]

/** Node.js 20 warns about an import of JSON. */
const require = createRequire(import.meta.url)

export const textsIn = (language: Language): ProblemTexts => require(`./problem-texts.${language}.json`)

/** The frame of a message. Apart from the problems, because pages do not show it. */
export const messagesIn = (language: Language): typeof messages => require(`./message-texts.${language}.json`)

interface MessageFormats extends Formats {
  /** `45 min` */
  duration: (seconds: number) => string
}

/** @param now to which times are relative */
export function formatsIn(language: Language, now: number): MessageFormats {
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
  return { number: String, date: (day) => day, relative, duration }
}

/** Without a command, for several accounts. */
export const explainForMany = (problem: Problem, now: number, language: Language): ExplainedProblem =>
  describeProblem(textsIn(language), problem, formatsIn(language, now))

export function explainProblem(
  id: AccountId,
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

function commandFor(id: AccountId, { reason, facts }: Problem): string | null {
  switch (reason) {
    case 'no_channel_secret':
    case 'line_signature_refused':
    case 'line_signature_doubtful':
      return `oa-audience accounts update ${id} --channel-secret -`
    case 'webhook_test_failed':
      return facts.check?.reason === 'test_signature_refused'
        ? `oa-audience accounts update ${id} --channel-secret -`
        : `oa-audience accounts verify ${id} --test-webhook`
    case 'token_refused':
      return isStoredToken(facts.check)
        ? `oa-audience accounts update ${id} --channel-access-token -`
        : `oa-audience accounts update ${id} --channel-id ID --channel-secret -`
    case 'other_account':
      return `oa-audience accounts update ${id} --channel-id ID --channel-secret -`
    case 'chat_signature_refused':
      return `oa-audience accounts update ${id} --chat-secret -`
    case 'token_expires':
      return `oa-audience accounts update ${id} --channel-access-token -`
    case 'not_verifiable': {
      const { hasChannelId, hasChannelSecret } = facts
      const options = `${hasChannelId ? '' : ' --channel-id ID'}${hasChannelSecret ? '' : ' --channel-secret -'}`
      return `oa-audience accounts update ${id}${options}`
    }
    case 'foreign_destination':
      return `oa-audience accounts verify ${id}`
    case 'answered_elsewhere':
      return `oa-audience accounts verify ${id} --test-webhook`
    case 'redelivery_off':
      return `oa-audience accounts verify ${id} --prove-redelivery`
    case 'duplicate_bot':
      return `oa-audience accounts show ${facts.otherId}`
    case 'never_delivered':
    case 'unusually_quiet':
    case 'silent_for_days':
      return `oa-audience accounts verify ${id} --test-webhook`
    case 'deliveries_failed':
    case 'platform_unreachable':
      return 'oa-audience doctor'
    case 'events_unapplied':
      return `oa-audience events list --status failed --account ${id}`
    case 'endpoint_failing':
      return `oa-audience endpoints pause ${facts.endpointId}`
    case 'endpoint_failed':
      return `oa-audience endpoints list --account ${id}; oa-audience endpoints retry ID`
    default:
      return null
  }
}
