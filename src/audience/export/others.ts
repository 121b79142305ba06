/** Removes other people from the events of a person. */
import { isObject } from '../../http/body.ts'
import { LINE_USER_ID } from '../../ids.ts'

type ExportedFields = Record<string, unknown>

/** What remains of somebody else's event, in which the person joined or left a group. */
const SHARED_FIELDS = [
  'type',
  'mode',
  'timestamp',
  'webhookEventId',
  'deliveryContext',
  'source',
  'joined',
  'left',
]

const ACTIVITY_TEXTS = ['content', 'processed_message_content']

/**
 * Returns the payload as it is if it contains nobody else, because parsing would change numbers beyond 2^53.
 *
 * - LINE: user ids of others and the list elements that contain them, such as mentions and joined members. What the person wrote
 *   remains, with names in it. LINE sends no text of quoted messages. This applies to kinds that do not exist yet, too.
 * - Support chats: names and addresses of agents, and what the chat wrote about their work. What agents wrote to the person remains.
 * - Tracking: the visitor's page sends no data of others.
 */
export function withoutOthers(
  { source, isSource }: { source: string; isSource: boolean },
  userId: string,
  payload: string,
): string {
  if (source === 'tracking') return payload
  const event: unknown = JSON.parse(payload)
  const own = isSource ? event : pick(event, SHARED_FIELDS)
  let isSame = own === event
  const { isDroppedElement, isDroppedField } = source === 'line' ? othersOf(userId) : AGENTS
  const kept = JSON.stringify(own, function (this: ExportedFields, name, value: unknown) {
    if (value !== own && !Array.isArray(this) && isDroppedField(name, value, this)) {
      isSame = false
      return undefined
    }
    if (!Array.isArray(value)) return value
    const elements = value.filter((element) => !isDroppedElement(element))
    isSame &&= elements.length === value.length
    return elements
  })
  return isSame ? payload : kept
}

function pick(value: unknown, names: string[]): ExportedFields {
  return isObject(value)
    ? Object.fromEntries(Object.entries(value).filter(([name]) => names.includes(name)))
    : {}
}

interface Drops {
  isDroppedElement: (element: unknown) => boolean
  isDroppedField: (name: string, value: unknown, of: ExportedFields) => boolean
}

function othersOf(userId: string): Drops {
  const isOther = (value: unknown) => typeof value === 'string' && value !== userId
  const isOtherId = (value: unknown) => isOther(value) && LINE_USER_ID.test(value as string)
  return {
    isDroppedElement: (element) => isOtherId(element) || (isObject(element) && isOther(element.userId)),
    isDroppedField: (name, value) => isOtherId(value) || (name === 'userId' && isOther(value)),
  }
}

const isAgent = (value: unknown) => isObject(value) && value.type === 'user'

/** Chatwoot's agents have the type `user`. An activity, such as "Assigned to Ann by Bob", has a word or 2 as its type. */
const AGENTS: Drops = {
  isDroppedElement: isAgent,
  isDroppedField: (name, value, { message_type: type }) =>
    name === 'assignee' ||
    isAgent(value) ||
    (ACTIVITY_TEXTS.includes(name) && (type === 'activity' || type === 2)),
}
