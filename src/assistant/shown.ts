/**
 * What an assistant sees of the result of a read: the fields of FIELDS, and no others. Text that outsiders wrote (display names, tags,
 * names that tenants chose, messages of LINE and of endpoints) only appears as the value of a field `untrusted`. Personal text is masked,
 * unless the operator has decided otherwise.
 */
import { oneLine } from '../observability/one-line.ts'

/** Characters of one text. A display name has at most 20 to 50; the responses of endpoints that are stored have up to 500. */
const TEXT_MAX = 300
/** Rows of a list without pages, and tags of a person. */
const ITEMS_MAX = 50
/** Format characters, private use, unassigned, variation selectors, fillers, and the blank of Braille. */
const UNSEEN = /\p{Cf}|\p{Co}|\p{Cn}|\p{Variation_Selector}|\p{Default_Ignorable_Code_Point}|\u2800/gu
/** Ids, times, and codes of closed sets. */
const CODE = /^[\w.:+-]{0,64}$/
const MASK = '•••'

/** Removes what a person does not see and a model does. */
export const visible = (text: string): string => oneLine(text.replace(UNSEEN, ''), TEXT_MAX)

const untrusted = (text: string) => ({ untrusted: visible(text) })

type Row = Record<string, unknown>
type Show = (value: unknown, row: Row, showsPersonal: boolean, name: string) => unknown

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))

/** A value of ours. If it does not look like one, it is text. */
const fact: Show = (value) => {
  if (typeof value === 'object') return null
  return typeof value === 'string' && !CODE.test(value) ? untrusted(value) : value
}
const ours: Show = (value) => value
const text: Show = (value) => untrusted(textOf(value))
/** Text about a person, or text that may contain some: its first character. */
const personal: Show = (value, _row, showsPersonal) => {
  if (showsPersonal) return untrusted(textOf(value))
  const [first = ''] = visible(textOf(value))
  return { untrusted: `${first}${MASK}` }
}
const inside: Show = (value, _row, showsPersonal, name) => shown(value as Row, showsPersonal, name)
/** The path of an address may be a token. */
const host: Show = (value) => untrusted(URL.parse(String(value))?.host ?? '')
/** An endpoint may repeat what it received in its response. Without a response, the text is the reason. */
const response: Show = (value, row, showsPersonal, name) => {
  const { status, lastStatus = status } = row
  return (lastStatus === null ? text : personal)(value, row, showsPersonal, name)
}
/** Values may be addresses or names of people, so all but numbers and booleans are personal text. */
const changes: Show = (value, row, showsPersonal, name) =>
  Object.entries(value as Row).map(([field, change]) => ({
    field: untrusted(field),
    value:
      change === null || typeof change === 'number' || typeof change === 'boolean'
        ? change
        : personal(change, row, showsPersonal, name),
  }))

const SHOWS = { fact, ours, text, personal, inside, host, response, changes }

/** By the name of a list or object, and by how they are shown: its fields. All others are hidden. */
const FIELDS: Record<string, Partial<Record<keyof typeof SHOWS, string>>> = {
  fleet: {
    fact: `id organizationId status problemCount lastDeliveryAt deliveries24h following growth7d unapplied
           endpointsPending endpointsFailed quotaLimit quotaUsed`,
    text: 'name basicId organizationName',
    inside: 'problem',
  },
  problem: { fact: 'reason status' },
  account: { fact: 'id organizationId', text: 'name basicId' },
  facts: {
    fact: `status addedAt lastDeliveryAt deliveries24h events24h failed24h refused lastRefusedAt unapplied verifiedAt checkedAt
           tokenExpiresAt quotaLimit quotaUsed members following blocked growth7d countedAt endpointsPending endpointsFailed`,
    text: 'organizationName',
  },
  problems: { fact: 'reason status', text: 'message', ours: 'fix' },
  verification: { fact: 'verified checkedAt', inside: 'checks' },
  checks: { fact: 'name ok reason status', text: 'message' },
  deliveriesByDay: { fact: 'day deliveries accepted duplicates unapplied refused failed' },
  membersByDay: { fact: 'day following blocked firstFollows returns unfollows lineFollowers lineBlocks' },
  endpoints: {
    fact: 'id accountId format status isRotating createdAt pending failed oldestPendingSeconds',
    text: 'name accountName',
    host: 'url',
    inside: 'lastAnswer',
  },
  lastAnswer: { fact: 'at status', response: 'text' },
  deliveries: {
    fact: 'id status type memberId events isReplay attempts createdAt dueAt failedAt lastStatus',
    response: 'lastAnswer',
  },
  attempts: { fact: 'startedAt status durationMs events attempt deliveryId', text: 'reason' },
  events: { fact: 'id accountId source occurredAt receivedAt', text: 'accountName kind failure' },
  reasons: { fact: 'count', text: 'failure' },
  member: {
    fact: 'id relationship followedAt blockedAt firstSeenAt lastSeenAt eventCount version createdAt updatedAt',
    personal: 'displayName externalId tags attributes',
    inside: 'conversation source',
  },
  conversation: { fact: 'updatedAt', personal: 'status' },
  source: { fact: 'at', text: 'source medium campaign' },
  timeline: { fact: 'at source eventId', text: 'kind', inside: 'effect' },
  // Without the values of an edit.
  effect: { fact: 'kind fields', text: 'failure source campaign', inside: 'by' },
  by: { fact: 'keyId', text: 'clientName', personal: 'actor' },
  activity: {
    fact: 'id occurredAt action actorKind operatorId objectKind objectId organizationId accountId',
    text: 'organizationName accountName',
    personal: 'actor',
    changes: 'changes',
  },
  accountsAndEndpoints: { fact: 'errors warnings' },
  findings: { fact: 'severity', text: 'check message' },
}

/** @param parent the name of the object, or of the list that has it */
function shown(row: Row, showsPersonal: boolean, parent: string): Row {
  const result: Row = {}
  for (const [how, names] of Object.entries(FIELDS[parent] ?? {}))
    for (const name of names.split(/\s+/)) {
      const show = SHOWS[how as keyof typeof SHOWS]
      const each = (item: unknown) => (item === null ? null : show(item, row, showsPersonal, name))
      const value = row[name]
      if (Array.isArray(value)) result[name] = value.slice(0, ITEMS_MAX).map(each)
      else if (value !== undefined) result[name] = each(value)
    }
  return result
}

/** Shows the lists and objects of a result, and how to read the next page. */
export function showParts(parts: object, showsPersonal: boolean): Row {
  const entries = Object.entries(parts).flatMap(([name, part]) => {
    const show = (row: Row) => shown(row, showsPersonal, name)
    if (typeof part === 'object' && part !== null)
      return [[name, Array.isArray(part) ? part.slice(0, ITEMS_MAX).map(show) : show(part)]]
    return name === 'next' || name === 'matching' ? [[name, part]] : []
  })
  return Object.fromEntries(entries)
}
