/** The event types that endpoints can receive. */
import { refuseInput } from '../http/validate.ts'

export type EndpointFormat = 'line' | 'members'

export const EVENT_TYPES: Record<EndpointFormat, string[]> = {
  // https://developers.line.biz/en/reference/messaging-api/#webhook-event-objects, and those that only module channels receive
  line: `message messageEdited unsend follow unfollow join leave memberJoined memberLeft postback videoPlayComplete beacon
    accountLink membership module activated deactivated botSuspended botResumed delivery`.split(/\s+/),
  members: ['member.created', 'member.updated', 'member.erased', 'account.verified'],
}

/** Other programs may store types that do not exist, so that the endpoint never receives them. @param events null: all */
export const unknownTypes = (format: EndpointFormat, events: string[] | null): string[] =>
  events?.filter((type) => !EVENT_TYPES[format].includes(type)) ?? []

/** A misspelt type would never be sent, and nobody would notice. Throws `invalid_input`. */
export function checkEventTypes(format: EndpointFormat, events: string[] | null): void {
  const [unknown] = unknownTypes(format, events)
  if (unknown === undefined) return
  const types = EVENT_TYPES[format]
  // The type with the longest common beginning.
  const word = unknown.toLowerCase()
  const common = (type: string) =>
    [...word].filter((_, end) => type.toLowerCase().startsWith(word.slice(0, end + 1))).length
  const nearest = types.toSorted((one, other) => common(other) - common(one))[0]
  refuseInput(
    'events',
    `contains ${unknown}, which the format ${format} does not have. Did you mean ${nearest}? Its event types are ${types.join(', ')}.`,
  )
}
