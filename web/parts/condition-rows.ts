/** Rows of a condition as a form shows them: a field, and its value as text. Pure functions. */
import type { Condition } from '../../src/audience/condition.ts'
import { itemsOf } from '../../src/http/csv.ts'

export type ConditionField = keyof Condition

export interface ConditionRow {
  field: ConditionField
  text: string
}

type Kind = 'texts' | 'relationship' | 'word' | 'duration' | 'count' | 'yes' | 'attributes'

/** In the order of the list from which an operator chooses. */
export const KINDS: Record<ConditionField, Kind> = {
  tagsAll: 'texts',
  tagsAny: 'texts',
  tagsNone: 'texts',
  relationship: 'relationship',
  followedAfter: 'duration',
  followedBefore: 'duration',
  lastSeenAfter: 'duration',
  lastSeenBefore: 'duration',
  sourceAny: 'texts',
  campaignAny: 'texts',
  eventCountMin: 'count',
  eventCountMax: 'count',
  language: 'word',
  conversationStatus: 'word',
  hasExternalId: 'yes',
  attributes: 'attributes',
}

/** What a new row begins with. */
export const FIRST: Record<Kind, string> = {
  texts: '',
  relationship: 'following',
  word: '',
  duration: '30d',
  count: '1',
  yes: 'true',
  attributes: '',
}

/** A number, true or false, or else the text. */
function scalarOf(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true'
  return text !== '' && String(Number(text)) === text ? Number(text) : text
}

function valueOfRow({ field, text }: ConditionRow): unknown {
  switch (KINDS[field]) {
    case 'texts':
      return itemsOf(text)
    case 'count':
      return text.trim() === '' ? text : Number(text)
    case 'yes':
      return text === 'true'
    case 'attributes':
      return Object.fromEntries(
        itemsOf(text).map((item) => {
          const [name = '', ...value] = item.split('=')
          return [name.trim(), scalarOf(value.join('=').trim())]
        }),
      )
    default:
      return text.trim()
  }
}

function textOf(field: ConditionField, value: unknown): string {
  if (Array.isArray(value)) return value.join(', ')
  if (field !== 'attributes') return String(value)
  return Object.entries(value as object)
    .map(([name, each]) => `${name}=${each}`)
    .join(', ')
}

/** The text is empty without rows: everybody. */
export const jsonOfRows = (rows: ConditionRow[]): string =>
  rows.length === 0 ? '' : JSON.stringify(Object.fromEntries(rows.map((row) => [row.field, valueOfRow(row)])))

/** Null: the text is not a condition that rows can show, such as one with a comma in a tag. */
export function rowsOfJson(json: string): ConditionRow[] | null {
  if (json.trim() === '') return []
  try {
    const condition: unknown = JSON.parse(json)
    if (typeof condition !== 'object' || condition === null || Array.isArray(condition)) return null
    const rows = Object.entries(condition).map(
      ([field, value]): ConditionRow => ({
        field: field as ConditionField,
        text: textOf(field as ConditionField, value),
      }),
    )
    if (rows.some(({ field }) => !Object.hasOwn(KINDS, field))) return null
    const isSame = JSON.stringify(JSON.parse(jsonOfRows(rows) || '{}')) === JSON.stringify(condition)
    return isSame ? rows : null
  } catch {
    return null
  }
}
