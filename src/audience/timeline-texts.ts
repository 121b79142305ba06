/** Texts about what events and edits did to a member. The console has a table of the same type per language. */
import type { EditAuthor, MemberChanges, TimelineEffect } from './members.ts'

type SimpleEffect = Exclude<TimelineEffect['kind'], 'not_applied' | 'edited'>

export interface TimelineTexts {
  effects: Record<SimpleEffect, string>
  notApplied: (failure: string) => string
  edited: (fields: string, author: string) => string
  /** fields of a member by their names in the API */
  fields: Record<string, string>
  client: (name: string) => string
  key: (id: string) => string
  otherProgram: string
}

export const TIMELINE_TEXTS: TimelineTexts = {
  effects: {
    following: 'relationship following',
    blocked: 'relationship blocked',
    joined_or_left: 'named as joined or left',
    conversation: 'conversation',
    activity: 'activity',
    seen: 'seen',
  },
  notApplied: (failure) => `not applied: ${failure}`,
  edited: (fields, author) => `${fields} by ${author}`,
  fields: {},
  client: (name) => `client ${name}`,
  key: (id) => `key ${id}`,
  otherProgram: 'a command or another program',
}

type Effect =
  | Exclude<TimelineEffect, { kind: 'edited' }>
  | Omit<Extract<TimelineEffect, { kind: 'edited' }>, 'changes'>

/** @param failureText translates why an event was not applied */
export function describeEffect(
  texts: TimelineTexts,
  effect: Effect,
  failureText = (failure: string): string => failure,
): string {
  switch (effect.kind) {
    case 'not_applied':
      return texts.notApplied(failureText(effect.failure))
    case 'edited':
      return texts.edited(
        effect.fields.map((name) => fieldName(texts, name)).join(', '),
        authorOf(texts, effect.by),
      )
    default:
      return texts.effects[effect.kind] ?? effect.kind
  }
}

function authorOf(texts: TimelineTexts, by: EditAuthor | null): string {
  if (by === null) return texts.otherProgram
  if ('actor' in by) return by.actor === 'token' ? 'CONSOLE_TOKEN' : by.actor
  const name = by.clientName ?? by.clientId
  return name === null ? texts.key(by.keyId) : texts.client(name)
}

const fieldName = (texts: TimelineTexts, name: string): string =>
  (Object.hasOwn(texts.fields, name) ? texts.fields[name] : undefined) ?? name

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
  texts: TimelineTexts,
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

/** A change in one line of plain text. */
export function changeLine({ field, before, after, isTags }: FieldChange): string {
  const values = isTags ? [before, after].filter((tags) => tags !== null) : [before ?? '—', after ?? '—']
  return `${field}: ${values.join(isTags ? ' ' : ' → ')}`
}
