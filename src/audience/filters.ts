import { SOURCE_MAX_LENGTH, USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { parseJson } from '../http/body.ts'
import { readTime } from '../http/times.ts'
import { type Static, Type } from '../http/typebox.ts'
import { checker, refuseInput, StorableText } from '../http/validate.ts'
import type { AccountId } from '../ids.ts'
import type { Queryable } from '../postgres/statement.ts'
import { type Condition, checkCondition } from './condition.ts'
import { EXTERNAL_ID_MAX_LENGTH, RelationshipSchema, TAG_MAX_LENGTH } from './member.ts'
import { findCondition, SEGMENT_NAME_MAX_LENGTH } from './segments.ts'

/** Maximum per query. All must match. */
const TAGS_MAX = 10
/** Characters. The platform's display names have 20. */
const NAME_PART_MAX_LENGTH = 100

const Tag = StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH })

const optional = (maxLength: number, description: string) =>
  Type.Optional(StorableText({ minLength: 1, maxLength, description }))

export const filterParameters = {
  userId: optional(USER_ID_MAX_LENGTH, 'Returns the member with this user id of the channel.'),
  externalId: optional(EXTERNAL_ID_MAX_LENGTH, 'Returns the member with this `externalId`.'),
  relationship: Type.Optional(RelationshipSchema),
  tag: Type.Optional(Type.Union([Tag, Type.Array(Tag, { maxItems: TAGS_MAX })])),
  source: optional(SOURCE_MAX_LENGTH, 'Returns members whose `source` has this source.'),
  segment: optional(
    SEGMENT_NAME_MAX_LENGTH,
    'Returns members of the segment with this name. Its condition must hold.',
  ),
  q: optional(NAME_PART_MAX_LENGTH, 'Returns members whose display name contains this text, ignoring case.'),
  updatedSince: Type.Optional(Type.String()),
}

const FilterSchema = Type.Object(filterParameters)

/** A member must match all filters. The time is ISO 8601 with milliseconds, in UTC. `q` ignores case, and there are no wildcards. */
export type Filters = Omit<Static<typeof FilterSchema>, 'tag' | 'segment'> & {
  /** Sorted and without duplicates, so that the same tags are the same query. */
  tag?: string[]
  /** With its condition, so that a changed segment is another query. The name of a condition without a segment is empty. */
  segment?: { name: string; condition: Condition }
}

/**
 * Converts validated parameters. Throws `invalid_input` for an unknown segment, for a wrong condition, and if updatedSince is not a time.
 *
 * @param condition JSON of a condition that no segment has; not together with a segment
 */
export async function readFilters(
  database: Queryable,
  accountId: AccountId,
  { segment: name, condition, ...parameters }: Static<typeof FilterSchema> & { condition?: string },
): Promise<Filters> {
  const filters = toFilters(parameters)
  if (condition !== undefined) {
    if (name !== undefined) refuseInput('condition', 'must not be combined with a segment')
    return { ...filters, segment: { name: '', condition: checkCondition(parseJson(condition)) } }
  }
  if (name === undefined) return filters
  return { ...filters, segment: { name, condition: await findCondition(database, accountId, name) } }
}

/** Adds the tags, the relationship and the only source that the segment requires, because their indexes find its members. */
export function withRequired(filters: Filters): Filters {
  const { tagsAll, relationship, sourceAny } = filters.segment?.condition ?? {}
  return {
    ...(sourceAny?.length === 1 && { source: sourceAny[0] }),
    ...(relationship !== undefined && { relationship }),
    ...filters,
    ...(tagsAll !== undefined && { tag: [...(filters.tag ?? []), ...tagsAll] }),
  }
}

export function toFilters({
  tag,
  updatedSince,
  ...rest
}: Omit<Static<typeof FilterSchema>, 'segment'>): Filters {
  return {
    ...rest,
    ...(tag === undefined ? {} : { tag: [...new Set([tag].flat())].sort() }),
    ...(updatedSince === undefined
      ? {}
      : { updatedSince: new Date(readTime('updatedSince', updatedSince)).toISOString() }),
  }
}

/** Validates filters for streams and the command line. */
export const checkFilters = checker(Type.Object(filterParameters, { additionalProperties: false }))
