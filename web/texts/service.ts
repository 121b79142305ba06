/** What the service says in English, in the language of the page: problems, checks, refusals and what happened to a person. */

import type { Check } from '../../src/accounts/verification.ts'
import type { TimelineTexts } from '../../src/audience/timeline-texts.ts'
import type { Problem } from '../../src/watch/account-status.ts'
import type { Json } from '../api.ts'
import { english, fill, type Localized, type Texts } from './languages.ts'

/** Returns the message unchanged if it is a more precise one than that of its code, or of another version. */
export function describeMessage(texts: Texts, message: string): string {
  return translate(english.failure.messages, texts.failure.messages, message) ?? message
}

/** @param message about one field of a form or one cell of a file. Those about cells begin with "it". */
export function describeFieldMessage(texts: Texts, message: string): string {
  const plain = message.replace(/^it /, '').replace(/\.$/, '')
  const isEnglish = texts === english
  return (isEnglish ? null : translate(english.failure.fields, texts.failure.fields, plain)) ?? message
}

function translate<T extends Record<string, string>>(from: T, to: T, sentence: string): string | undefined {
  const key = Object.keys(from).find((each) => from[each] === sentence)
  return key === undefined ? undefined : to[key]
}

/** Why an event could not be applied. The service stores an English sentence, which is also the filter of the list. */
export function describeFailure(texts: Texts, failure: string): string {
  for (const [kind, template] of Object.entries(english.eventFailures)) {
    const [before = '', after] = template.split('{fact}')
    const isKind =
      after === undefined ? failure === before : failure.startsWith(before) && failure.endsWith(after)
    const fact = failure.slice(before.length, failure.length - (after ?? '').length)
    if (isKind) return fill(texts.eventFailures[kind as keyof Texts['eventFailures']], { fact })
  }
  return failure
}

/** Returns the service's English message if there is no table, or if a verification of an older version has no reason. */
export function describeCheck({ checks }: Texts, check: Check): string {
  if (checks === undefined) return check.message
  if (check.ok === null) return checks.noEvidence
  return (check.ok ? checks.passed[check.name] : failureText(checks, check)) ?? check.message
}

/** Returns the reason with LINE's status and message, or null if the check has no reason. */
function failureText({ failed }: NonNullable<Texts['checks']>, check: Check): string | null {
  if (check.reason === undefined || !Object.hasOwn(failed, check.reason)) return null
  const details = [check.status, check.platformMessage].filter((detail) => detail != null)
  const reason = failed[check.reason]
  return details.length === 0 ? reason : `${reason} (${details.join(': ')})`
}

type Formats = Pick<Localized, 'number' | 'relative' | 'date'>

/** @returns what is wrong, and how to fix it */
export function describeProblem(
  texts: Texts,
  problem: Json<Problem>,
  { number, relative, date }: Formats,
): { message: string; fix: string } {
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

function variantOf({ reason, facts }: Json<Problem>): keyof Texts['problems'] {
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

/** The texts about what happened to a member, as the service's functions take them. */
export function timelineTexts({ member: { timelineTexts: t } }: Texts): TimelineTexts {
  return {
    ...t,
    notApplied: (failure) => fill(t.notApplied, { failure }),
    edited: (fields, author) => fill(t.edited, { fields, author }),
    client: (name) => fill(t.client, { name }),
    key: (id) => fill(t.key, { id }),
  }
}
