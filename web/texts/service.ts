/** What the service says in English, in the language of the page: refusals and what happened to a person. */

import type { TimelineTexts } from '../../src/audience/timeline-texts.ts'
import { fill } from '../../src/watch/problem-texts.ts'
import { english, type Texts } from './languages.ts'

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
