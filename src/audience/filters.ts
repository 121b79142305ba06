/** What of an audience a client asks for. */
import Type, { type Static } from 'typebox'
import { checker, refuseInput, StorableText } from '../http/validate.ts'
import { EXTERNAL_ID_MAX_LENGTH, RelationshipSchema, TAG_MAX_LENGTH, USER_ID_MAX_LENGTH } from './member.ts'

/** Tags that must all match, in one query. */
const TAGS_MAX = 10
/** Characters. The platform's display names have 20. */
const NAME_PART_MAX_LENGTH = 100

const Tag = StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH })

export const filterParameters = {
  userId: Type.Optional(StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH })),
  externalId: Type.Optional(StorableText({ minLength: 1, maxLength: EXTERNAL_ID_MAX_LENGTH })),
  relationship: Type.Optional(RelationshipSchema),
  tag: Type.Optional(Type.Union([Tag, Type.Array(Tag, { maxItems: TAGS_MAX })])),
  q: Type.Optional(StorableText({ minLength: 1, maxLength: NAME_PART_MAX_LENGTH })),
  updatedSince: Type.Optional(Type.String()),
}

const FilterSchema = Type.Object(filterParameters)

/** All must hold. */
export interface Filters {
  userId?: string
  externalId?: string
  relationship?: Static<typeof RelationshipSchema>
  /** all of them, none twice, in one order: the same tags are the same query */
  tag?: string[]
  /** a part of the display name, in any case; no character has a special meaning */
  q?: string
  /** ISO 8601 with milliseconds, in UTC */
  updatedSince?: string
}

/** From checked parameters. Throws `invalid_input` for a time that is none. */
export function toFilters({ tag, updatedSince, ...rest }: Static<typeof FilterSchema>): Filters {
  return {
    ...rest,
    ...(tag === undefined ? {} : { tag: [...new Set([tag].flat())].sort() }),
    ...(updatedSince === undefined ? {} : { updatedSince: readTime(updatedSince) }),
  }
}

/** ISO 8601 with a zone, as members show their times. A plus that a client forgot to escape comes as a space. */
function readTime(text: string): string {
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+ -]\d\d:\d\d)$/.test(text)
  const ms = isTime && isDay(text.slice(0, 10)) ? Date.parse(text.replace(' ', '+')) : Number.NaN
  if (Number.isNaN(ms)) {
    refuseInput(
      'updatedSince',
      'must be a time such as 2026-11-21T09:00:00.000Z: take the updatedAt of a member',
    )
  }
  return new Date(ms).toISOString()
}

/** The 30th of February would be taken for the 2nd of March, and what changed in between be missed. */
function isDay(text: string): boolean {
  const day = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text)
}

/** Filters and nothing else: of a stream, or of the command line. */
export const checkFilters = checker(Type.Object(filterParameters, { additionalProperties: false }))
