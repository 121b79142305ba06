/** What is wrong with an account and how to fix it, in the words of problem-texts.*.json: for pages, messages and commands. */
import type { Check, FailureReason } from '../accounts/verification.ts'
import type { Problem } from './account-status.ts'
import type english from './problem-texts.en.json'

/** English is the source. Of checks, it shows the message of the service. */
export type ProblemTexts = typeof english & {
  checks?: {
    passed: Record<Check['name'], string>
    failed: Record<FailureReason, string>
    noEvidence: string
  }
}

/** How a reader sees numbers and times. */
export interface Formats {
  number: (value: number) => string
  /** `3 h ago`, `in 2 days` */
  relative: (iso: string) => string
  /** a day without a time of day, such as 2026-01-31 */
  date: (day: string) => string
}

export interface ExplainedProblem {
  message: string
  fix: string
}

/** `{count}` is the value; `{count|event|events}` is the first form for the value `1`, else the second. A missing value stays visible. */
export function fill(template: string, values: Record<string, string>): string {
  return template.replaceAll(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (whole, name, one, many) =>
    one === undefined ? (values[name] ?? whole) : values[name] === '1' ? one : many,
  )
}

/** A verification of an older version has no reason. */
export function describeCheck({ checks }: Pick<ProblemTexts, 'checks'>, check: Check): string {
  if (checks === undefined) return check.message
  if (check.ok === null) return checks.noEvidence
  return (check.ok ? checks.passed[check.name] : failureText(checks, check)) ?? check.message
}

function failureText({ failed }: NonNullable<ProblemTexts['checks']>, check: Check): string | null {
  if (check.reason === undefined || !Object.hasOwn(failed, check.reason)) return null
  const details = [check.status, check.platformMessage].filter((detail) => detail != null)
  const reason = failed[check.reason]
  return details.length === 0 ? reason : `${reason} (${details.join(': ')})`
}

export function describeProblem(
  texts: Pick<ProblemTexts, 'problems' | 'checks' | 'checkSentence'>,
  problem: Problem,
  { number, relative, date }: Formats,
): ExplainedProblem {
  const { message, fix } = texts.problems[variantOf(problem)]
  const check = 'check' in problem.facts ? problem.facts.check : null
  const said = check && (texts.checks ? failureText(texts.checks, check) : check.message)
  if (said) return { message: fill(texts.checkSentence, { check: said.replace(/\.$/, '') }), fix }
  const values = Object.entries(problem.facts).map(([name, fact]) => {
    if (typeof fact === 'number') return [name, number(fact)]
    if (typeof fact !== 'string') return [name, '']
    return [name, name === 'day' ? date(fact) : name.endsWith('At') ? relative(fact) : fact]
  })
  return { message: fill(message, Object.fromEntries(values)), fix }
}

function variantOf({ reason, facts }: Problem): keyof ProblemTexts['problems'] {
  switch (reason) {
    case 'webhook_test_failed': {
      const failure = facts.check?.reason
      return failure === 'test_signature_refused' || failure === 'test_error_status' ? failure : reason
    }
    case 'token_expires':
      return facts.isExpired ? 'token_expired' : reason
    case 'not_verifiable':
      if (facts.hasChannelSecret) return 'no_channel_id'
      return facts.hasChannelId ? 'no_secret_to_verify' : reason
    case 'never_delivered':
      if (facts.secretChangedAt) return 'never_since_change'
      return facts.days === null ? 'never_since_added' : reason
    default:
      return reason
  }
}
