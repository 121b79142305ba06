/** A condition on a member: all of its fields must hold. matches_condition of migrations/functions/condition.sql evaluates it. */
import { SOURCE_MAX_LENGTH } from '../config/limits.ts'
import { isoMs } from '../http/times.ts'
import { type Static, Type } from '../http/typebox.ts'
import { checker, StorableText } from '../http/validate.ts'
import { isStorableText } from '../postgres/storable.ts'
import { Attribute, RelationshipSchema, TAG_MAX_LENGTH } from './member.ts'

/** Tags, sources or campaigns. */
const TEXTS_MAX = 50
const ATTRIBUTES_MAX = 20
/** Characters of an attribute's name or value. */
const ATTRIBUTE_MAX_LENGTH = 256
/** Characters of a language or a status of a conversation. */
const WORD_MAX_LENGTH = 64

const Texts = (maxLength: number) =>
  Type.Array(StorableText({ minLength: 1, maxLength }), { minItems: 1, maxItems: TEXTS_MAX })
const Tags = Texts(TAG_MAX_LENGTH)
const Sources = Texts(SOURCE_MAX_LENGTH)
const Word = StorableText({ minLength: 1, maxLength: WORD_MAX_LENGTH })

/** Five digits of weeks are 1,900 years, so no bound is outside PostgreSQL's range of times. */
const DURATION = /^\d{1,5}[mhdw]$/

const Bound = Type.Refine(
  Type.String(),
  (text) => DURATION.test(text) || timeOf(text) !== null,
  () => 'must be a time such as 2026-11-21T09:00:00Z, or a duration before now such as 30d (m, h, d or w)',
)

const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })

const Attributes = Type.Refine(
  Type.Unsafe<Record<string, Static<typeof Attribute>>>(
    Type.Object({}, { additionalProperties: Attribute, minProperties: 1, maxProperties: ATTRIBUTES_MAX }),
  ),
  (attributes) => Object.entries(attributes).flat().every(isAttributeText),
  () =>
    `must have names and texts of at most ${ATTRIBUTE_MAX_LENGTH} characters, without the character U+0000`,
)

const isAttributeText = (value: unknown) =>
  typeof value !== 'string' || (value.length <= ATTRIBUTE_MAX_LENGTH && isStorableText(value))

export const ConditionSchema = Type.Object(
  {
    tagsAll: Type.Optional(Tags),
    tagsAny: Type.Optional(Tags),
    tagsNone: Type.Optional(Tags),
    relationship: Type.Optional(RelationshipSchema),
    language: Type.Optional(Word),
    attributes: Type.Optional(Attributes),
    hasExternalId: Type.Optional(Type.Boolean()),
    conversationStatus: Type.Optional(Word),
    sourceAny: Type.Optional(Sources),
    campaignAny: Type.Optional(Sources),
    followedAfter: Type.Optional(Bound),
    followedBefore: Type.Optional(Bound),
    lastSeenAfter: Type.Optional(Bound),
    lastSeenBefore: Type.Optional(Bound),
    eventCountMin: Type.Optional(Count),
    eventCountMax: Type.Optional(Count),
  },
  { additionalProperties: false },
)

export type Condition = Static<typeof ConditionSchema>

const checkField = checker(Type.Object({ condition: ConditionSchema }))

/** Validates parsed JSON. Throws `invalid_input` with the path of each refused field, such as `condition/tagsAll`. */
export const checkCondition = (value: unknown): Condition =>
  normalizeCondition(checkField({ condition: value }).condition)

/** For the activity log: the values of attributes may be personal, so only their names. */
export function recordable(condition: Condition | null): object | null {
  if (condition?.attributes === undefined) return condition
  return { ...condition, attributes: Object.keys(condition.attributes) }
}

const BOUNDS = ['followedAfter', 'followedBefore', 'lastSeenAfter', 'lastSeenBefore'] as const

/** Writes times in UTC, as matches_condition expects them. */
export function normalizeCondition(condition: Condition): Condition {
  const normalized = { ...condition }
  for (const name of BOUNDS) {
    const { [name]: bound } = condition
    if (bound !== undefined) normalized[name] = timeOf(bound) ?? bound
  }
  return normalized
}

/** PostgreSQL and JavaScript write years before 1 and after 9999 in different ways. */
function timeOf(text: string): string | null {
  const time = new Date(isoMs(text))
  const year = time.getUTCFullYear()
  return year >= 1 && year <= 9_999 ? time.toISOString() : null
}

/** SQL: whether a condition (a jsonb parameter, null for everybody) holds for the member m. Tracked activity is read only if it matters. */
export const holdsFor = (condition: string): string => `(${condition} is null or (
             select matches_condition(m.tags, m.relationship, m.language, m.attributes, m.external_id, m.conversation_id,
                                      m.conversation_status, m.followed_at, greatest(m.last_seen_at, tracked.last_seen_at),
                                      m.event_count::numeric + coalesce(tracked.event_count, 0), m.source, m.campaign,
                                      ${condition}, now())
               from (values (true)) as one
               left join (select event_count, last_seen_at from tracked_activity
                           where channel_oa_id = m.channel_oa_id and user_id = m.user_id and needs_activity(${condition})
                          offset 0) tracked on true))`
