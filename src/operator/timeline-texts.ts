/** The English texts about what events and edits did to a member. Each other language of the console has a table of the same type. */
import type { TimelineEffect } from './members.ts'

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

/** Ids are bigints here and strings in the JSON of the console. */
type Effect =
  | Exclude<TimelineEffect, { kind: 'edited' }>
  | { kind: 'edited'; fields: string[]; by: Author | null }
type Author = { keyId: bigint | string; clientId: string | null; clientName: string | null }

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
        effect.fields
          .map((name) => (Object.hasOwn(texts.fields, name) ? texts.fields[name] : name))
          .join(', '),
        authorOf(texts, effect.by),
      )
    default:
      return texts.effects[effect.kind] ?? effect.kind
  }
}

function authorOf(texts: TimelineTexts, by: Author | null): string {
  if (by === null) return texts.otherProgram
  const name = by.clientName ?? by.clientId
  return name === null ? texts.key(String(by.keyId)) : texts.client(name)
}
