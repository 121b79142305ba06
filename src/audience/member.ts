/** The member as clients see it: its one shape, in SQL and in TypeScript. */
import type { Static } from 'typebox'
import Type from 'typebox'
import { Nullable } from '../http/validate.ts'
import type { Statement } from '../postgres/statement.ts'

/** Characters. LINE's longest user id has 68 (module channels); the rest is room for other platforms. */
export const USER_ID_MAX_LENGTH = 128
/** Characters */
export const EXTERNAL_ID_MAX_LENGTH = 128
/** Characters */
export const TAG_MAX_LENGTH = 64

/** Sorts before the key of every event: of a state that is known without one. At equal times an event counts more. */
export const NO_KEY = '00000000-0000-0000-0000-000000000000'

const Time = Type.String({ format: 'date-time', description: 'ISO 8601, UTC, milliseconds' })

export const RelationshipSchema = Type.Union([
  Type.Literal('following'),
  Type.Literal('blocked'),
  Type.Literal('unknown'),
])

export const MemberSchema = Type.Object({
  id: Type.String({ description: 'int64 as decimal digits' }),
  userId: Type.String(),
  displayName: Nullable(Type.String()),
  pictureUrl: Nullable(Type.String()),
  language: Nullable(Type.String()),
  relationship: RelationshipSchema,
  followedAt: Nullable(Time),
  blockedAt: Nullable(Time),
  firstSeenAt: Nullable(Time),
  lastSeenAt: Nullable(Time),
  eventCount: Type.Integer({ minimum: 0 }),
  conversation: Nullable(
    Type.Object({ id: Type.String(), status: Nullable(Type.String()), updatedAt: Time }),
  ),
  externalId: Nullable(Type.String()),
  tags: Type.Array(Type.String()),
  attributes: Type.Unsafe<Record<string, unknown>>(Type.Object({}, { additionalProperties: Type.Unknown() })),
  version: Type.Integer({ minimum: 1 }),
  createdAt: Time,
  updatedAt: Time,
})

export type Member = Static<typeof MemberSchema>

/** ISO 8601 with milliseconds, in UTC, which is the time zone of our sessions; null stays null. */
export const timeText = (expression: string) => `to_char(${expression}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

const json = (expression: string) => `coalesce(to_json(${expression}), 'null')`
const time = (expression: string) =>
  `coalesce(to_char(${expression}, '\\"YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\\"'), 'null')`

const firstSeenAt = 'least(m.first_seen_at, t.first_seen_at)'
const lastSeenAt = 'greatest(m.last_seen_at, t.last_seen_at)'
const eventCount = 'm.event_count + coalesce(t.event_count, 0)'

// Other programs write what they like: tags with nulls or in two dimensions, attributes that are no object.
const tags = `case when m.tags = '{}' then '[]'
  when array_ndims(m.tags) = 1 and array_position(m.tags, null) is null then to_json(m.tags)::text
  else to_json(array(select tag from unnest(m.tags) as tag where tag is not null))::text end`
const attributes = `case jsonb_typeof(m.attributes) when 'object' then m.attributes::text else '{}' end`

/** What stands between the values of a member's JSON text, and the values. */
const jsonParts: Array<[string, string]> = [
  ['"id":"', 'm.id'],
  ['","userId":', 'to_json(m.user_id)'],
  [',"displayName":', json('m.display_name')],
  [',"pictureUrl":', json('m.picture_url')],
  [',"language":', json('m.language')],
  [',"relationship":"', 'm.relationship'],
  ['","followedAt":', time('m.followed_at')],
  [',"blockedAt":', time('m.blocked_at')],
  [',"firstSeenAt":', time(firstSeenAt)],
  [',"lastSeenAt":', time(lastSeenAt)],
  [',"eventCount":', eventCount],
  [
    ',"conversation":',
    `case when m.conversation_id is null then 'null' else concat('{"id":', to_json(m.conversation_id),
       ',"status":', ${json('m.conversation_status')}, ',"updatedAt":', ${time('m.conversation_at')}, '}') end`,
  ],
  [',"externalId":', json('m.external_id')],
  [',"tags":', tags],
  [',"attributes":', attributes],
  [',"version":', 'm.version'],
  [',"createdAt":', time('m.created_at')],
  [',"updatedAt":', time('m.updated_at')],
]

/**
 * The member as JSON text, built by PostgreSQL: rows pass through this process as they are. Expects
 * audience_member as m and tracked_activity, left joined, as t. Put together by hand, because json_build_object takes
 * twice as long.
 */
export const memberJson = `concat('{', ${jsonParts.map(([before, value]) => `'${before}', ${value}`).join(', ')}, '}')`

/** A member who was erased, in a delta feed. Expects its id and time as c. */
export const erasedJson = `concat('{"id":"', c.id, '","deletedAt":', ${time('c.at')}, '}')`

/** What a spreadsheet takes for the beginning of a formula (wide characters, too, where people write them), and what hides one. */
const FORMULA_BEGINNINGS = "'=+-@＝＋－＠\t\r\n"
const FORMULA_CODES = [...FORMULA_BEGINNINGS].map((character) => character.charCodeAt(0)).join(',')

/** A text as it was before CSV made it harmless. */
export function fromCsvText(text: string): string {
  return text.startsWith("'") && FORMULA_BEGINNINGS.includes(text.charAt(1)) && text.length > 1
    ? text.slice(1)
    : text
}

/**
 * A text in CSV, always quoted. What a spreadsheet would take for a formula begins with an apostrophe, and
 * so does what began with one, so that it can be taken away again.
 * Null is empty, without quotes.
 */
const csv = (
  expression: string,
) => `case when ascii(${expression}) = any ('{${FORMULA_CODES}}') then '"''' else '"' end
  || replace(${expression}, '"', '""') || '"'`

/** JSON text in CSV: it begins with a bracket, which is no formula. */
const quoted = (json: string) => `concat('"', replace(${json}, '"', '""'), '"')`

const csvColumns: Array<[string, string]> = [
  ['id', 'm.id'],
  ['userId', csv('m.user_id')],
  ['displayName', csv('m.display_name')],
  ['pictureUrl', csv('m.picture_url')],
  ['language', csv('m.language')],
  ['relationship', 'm.relationship'],
  ['followedAt', timeText('m.followed_at')],
  ['blockedAt', timeText('m.blocked_at')],
  ['firstSeenAt', timeText(firstSeenAt)],
  ['lastSeenAt', timeText(lastSeenAt)],
  ['eventCount', eventCount],
  ['conversationId', csv('m.conversation_id')],
  ['conversationStatus', csv('m.conversation_status')],
  ['conversationUpdatedAt', timeText('m.conversation_at')],
  ['externalId', csv('m.external_id')],
  ['tags', quoted(tags)],
  ['attributes', quoted(attributes)],
  ['version', 'm.version'],
  ['createdAt', timeText('m.created_at')],
  ['updatedAt', timeText('m.updated_at')],
  ['deletedAt', 'null'],
]

/** The first line of a CSV file; tags and attributes are JSON. */
export const CSV_HEADER = csvColumns.map(([name]) => name).join(',')

/** The member as a line of CSV (RFC 4180), without its end. */
export const memberCsv = `concat(${csvColumns.map(([, value]) => value).join(", ',', ")})`

/** A member who was erased, in a delta feed: id and deletedAt alone. */
export const erasedCsv = `concat(c.id, repeat(',', ${csvColumns.length - 1}), ${timeText('c.at')})`

/**
 * A member's tracking activity counts from the moment it is a member, whenever it was told. `offset` keeps it a look-up for
 * each member: the planner would rather read the activity of the whole account.
 */
export const withTrackedActivity = `
  left join lateral (
    select event_count, first_seen_at, last_seen_at from tracked_activity
     where channel_oa_id = m.channel_oa_id and user_id = m.user_id offset 0) t on true`

/** Whether a scope has a member that a condition on its version has left out. */
export const selectVersion: Statement = {
  name: 'member-version',
  text: `select version from audience_member where channel_oa_id = $1 and organization_id = $2 and id = $3`,
}
