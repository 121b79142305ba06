/** What the service says in English, in the language of the page: refusals and what happened to a person. */
import type { EditAuthor, MemberChanges, TimelineEffect } from '../../src/audience/member-details.ts'
import { fill } from '../../src/watch/problem-texts.ts'
import { type ConditionRow, KINDS, rowsOfJson } from '../parts/condition-rows.ts'
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

/** Why an event failed, or why there is no response. The service stores an English sentence, which is also the filter of events. */
export function describeFailure(texts: Texts, failure: string): string {
  const translated: Record<string, string> = { ...texts.eventFailures, ...texts.attemptFailures }
  const templates = { ...english.eventFailures, ...english.attemptFailures }
  for (const [kind, template] of Object.entries(templates)) {
    const [before = '', after] = template.split('{fact}')
    const isKind =
      after === undefined ? failure === before : failure.startsWith(before) && failure.endsWith(after)
    const fact = failure.slice(before.length, failure.length - (after ?? '').length)
    if (isKind) return fill(translated[kind] ?? failure, { fact })
  }
  return failure
}

/** What an event or an edit did to a member. */
export function describeEffect(texts: Texts, effect: Effect): string {
  const { timelineTexts: t } = texts.member
  switch (effect.kind) {
    case 'not_applied':
      return fill(t.notApplied, { failure: describeFailure(texts, effect.failure) })
    case 'edited': {
      const fields = effect.fields.map((name) => fieldName(texts, name)).join(', ')
      return fill(t.edited, { fields, author: authorOf(texts, effect.by) })
    }
    case 'touch':
      return fill(t.cameFrom, { from: cameFrom(effect) ?? '' })
    default:
      return t.effects[effect.kind] ?? effect.kind
  }
}

/** The source and the campaign, as far as they are known. */
export function cameFrom(source: { source: string | null; campaign: string | null } | null): string | null {
  return source && [source.source, source.campaign].filter((part) => part !== null).join(', ')
}

type Effect =
  | Exclude<TimelineEffect, { kind: 'edited' }>
  | Omit<Extract<TimelineEffect, { kind: 'edited' }>, 'changes'>

function authorOf({ member: { timelineTexts: t } }: Texts, by: EditAuthor | null): string {
  if (by === null) return t.otherProgram
  if ('actor' in by) return by.actor === 'token' ? 'CONSOLE_TOKEN' : by.actor
  const name = by.clientName ?? by.clientId
  return name === null ? fill(t.key, { id: by.keyId }) : fill(t.client, { name })
}

function fieldName({ member: { timelineTexts: t } }: Texts, name: string): string {
  const names: Record<string, string> = t.fields
  return (Object.hasOwn(names, name) ? names[name] : undefined) ?? name
}

/** What changed in one field. */
interface FieldChange {
  field: string
  /** null: it was absent; of tags, the removed ones */
  before: string | null
  /** null: it is absent; of tags, the added ones */
  after: string | null
  /** the other tags of the member are unchanged, so `after` does not replace `before` */
  isTags: boolean
}

/** Each attribute is a field of its own. */
export function describeChanges(
  texts: Texts,
  { externalId, tags, attributes = {} }: MemberChanges,
): FieldChange[] {
  const changes: FieldChange[] = []
  if (externalId !== undefined) {
    const [before, after] = externalId
    changes.push({ field: fieldName(texts, 'externalId'), before, after, isTags: false })
  }
  if (tags !== undefined) {
    const [before, after] = [signed('−', tags.removed), signed('+', tags.added)]
    changes.push({ field: fieldName(texts, 'tags'), before, after, isTags: true })
  }
  for (const [name, [before, after]] of Object.entries(attributes))
    changes.push({ field: name, before: shown(before), after: shown(after), isTags: false })
  return changes
}

const signed = (sign: string, tags: string[]): string | null =>
  tags.length === 0 ? null : tags.map((tag) => sign + tag).join(', ')

const shown = (value: unknown): string | null =>
  value === null || typeof value === 'string' ? value : JSON.stringify(value)

/** Each row in words, or the JSON of a condition that rows cannot show. */
export function describeCondition({ condition: t, audience }: Texts, json: string): string[] {
  const wordsOf = ({ field, text }: ConditionRow): string => {
    const [, count, unit] = /^(\d+)([mhdw])$/.exec(text) ?? []
    if (KINDS[field] === 'duration' && count) return `${count} ${t.units[unit as keyof typeof t.units]}`
    if (KINDS[field] === 'yes') return text === 'true' ? t.yes : t.no
    const { relationships } = audience
    return field === 'relationship' ? relationships[text as keyof typeof relationships] : text
  }
  return (
    rowsOfJson(json)?.map((row) => {
      const name = t.fields[row.field]
      // A time, which an operator wrote as JSON, is no duration that fits into the words.
      return name.includes('…') && !row.text.includes('T')
        ? name.replace('…', () => wordsOf(row))
        : `${name}: ${wordsOf(row)}`
    }) ?? [json]
  )
}
