/** The member as clients see it. The table FIELDS yields its schema, its JSON text and its CSV row. */
import { FORMULA_STARTS } from '../http/csv.ts'
import { type Static, type TSchema, Type } from '../http/typebox.ts'
import { Nullable } from '../http/validate.ts'
import { LINE_USER_ID } from '../ids.ts'

/** SQL: the user id of the member m. Null: it is of another form. */
export const LINE_ID = `case when m.user_id ~ '${LINE_USER_ID.source}' then m.user_id end`
// Characters.
export const EXTERNAL_ID_MAX_LENGTH = 128
export const TAG_MAX_LENGTH = 64

/** Key of a state that no event produced. It sorts first, so any event at the same time wins. */
export const NO_KEY = '00000000-0000-0000-0000-000000000000'

export const RelationshipSchema = Type.Enum(['following', 'blocked', 'unknown'], { type: 'string' })

const Time = Type.String({ format: 'date-time', description: 'ISO 8601, UTC, milliseconds' })

const ConversationSchema = Type.Object({
  id: Type.String(),
  status: Nullable(Type.String()),
  updatedAt: Time,
})

const SourceSchema = Type.Object({
  source: Nullable(Type.String()),
  medium: Nullable(Type.String()),
  campaign: Nullable(Type.String()),
  at: Time,
})

const AttributesSchema = Type.Unsafe<Record<string, unknown>>(
  Type.Object({}, { additionalProperties: Type.Unknown() }),
)

/** jsonb writes 1e308 as 309 digits, more than the limit on attributes allows. Integers beyond 2^53 would be rounded. */
const PlainNumber = Type.Refine(
  Type.Number(),
  (value) => !String(value).includes('e') && (!Number.isInteger(value) || Number.isSafeInteger(value)),
  () => 'must be a number that JSON represents exactly: send it as text',
)

export const Attribute = Type.Union([Type.String(), PlainNumber, Type.Boolean(), Type.Null()])

/** How a value is written: `plain` needs quotes in JSON and no escaping, `text` needs both, `json` is already JSON text. */
type Kind = 'number' | 'plain' | 'text' | 'time' | 'json'

/** `sql` is an expression over audience_member m and tracked_activity t. */
type Written = [name: string, kind: Kind, sql: string]

interface Field<Schema extends TSchema> {
  schema: Schema
  kind: Kind
  sql: string
  /** Columns in CSV, if the field is not one column of its name. */
  csv?: Written[]
}

const field = <Schema extends TSchema>(schema: Schema, kind: Kind, sql: string): Field<Schema> => ({
  schema,
  kind,
  sql,
})

/** An object, or null if the SQL expression `key` is null. */
const objectField = <Schema extends TSchema>(
  schema: Schema,
  key: string,
  parts: Written[],
  csv: Written[],
) => ({
  ...field(Nullable(schema), 'json', `case when ${key} is not null then ${jsonObjectOf(parts)} end`),
  csv,
})

// Other programs write tags with nulls or in two dimensions, and attributes that are not an object.
const TAGS = `case when m.tags = '{}' then '[]'
  when array_ndims(m.tags) = 1 and array_position(m.tags, null) is null then to_json(m.tags)::text
  else to_json(array(select tag from unnest(m.tags) as tag where tag is not null))::text end`
const ATTRIBUTES = `case jsonb_typeof(m.attributes) when 'object' then m.attributes::text else '{}' end`

/** Columns in CSV, and part of the object in JSON. */
const SOURCE: Written[] = [
  ['source', 'text', 'm.source'],
  ['medium', 'text', 'm.medium'],
  ['campaign', 'text', 'm.campaign'],
]

const FIELDS = {
  id: field(Type.String({ description: 'int64 as decimal digits' }), 'plain', 'm.id'),
  userId: field(Type.String(), 'text', 'm.user_id'),
  displayName: field(Nullable(Type.String()), 'text', 'm.display_name'),
  pictureUrl: field(Nullable(Type.String()), 'text', 'm.picture_url'),
  language: field(Nullable(Type.String()), 'text', 'm.language'),
  relationship: field(RelationshipSchema, 'plain', 'm.relationship'),
  followedAt: field(Nullable(Time), 'time', 'm.followed_at'),
  blockedAt: field(Nullable(Time), 'time', 'm.blocked_at'),
  firstSeenAt: field(Nullable(Time), 'time', 'least(m.first_seen_at, t.first_seen_at)'),
  lastSeenAt: field(Nullable(Time), 'time', 'greatest(m.last_seen_at, t.last_seen_at)'),
  // numeric, because other programs may load counts whose sum exceeds bigint, and such a member would fail every list.
  eventCount: field(
    Type.Integer({ minimum: 0 }),
    'number',
    'm.event_count::numeric + coalesce(t.event_count, 0)',
  ),
  conversation: objectField(
    ConversationSchema,
    'm.conversation_id',
    [
      ['id', 'text', 'm.conversation_id'],
      ['status', 'text', 'm.conversation_status'],
      ['updatedAt', 'time', 'm.conversation_at'],
    ],
    [
      ['conversationId', 'text', 'm.conversation_id'],
      ['conversationStatus', 'text', 'm.conversation_status'],
      ['conversationUpdatedAt', 'time', 'm.conversation_at'],
    ],
  ),
  source: objectField(SourceSchema, 'm.source_key', [...SOURCE, ['at', 'time', 'm.source_at']], SOURCE),
  externalId: field(Nullable(Type.String()), 'text', 'm.external_id'),
  tags: field(Type.Array(Type.String()), 'json', TAGS),
  attributes: field(AttributesSchema, 'json', ATTRIBUTES),
  version: field(Type.Integer({ minimum: 1 }), 'number', 'm.version'),
  createdAt: field(Time, 'time', 'm.created_at'),
  updatedAt: field(Time, 'time', 'm.updated_at'),
}

type Schemas = { [Name in keyof typeof FIELDS]: (typeof FIELDS)[Name]['schema'] }

export const MemberSchema = Type.Object(
  Object.fromEntries(Object.entries(FIELDS).map(([name, { schema }]) => [name, schema])) as Schemas,
)

export type Member = Static<typeof MemberSchema>

/** ISO 8601 with milliseconds. The time zone of all connections is UTC. Null stays null. */
const timeText = (sql: string) => `to_char(${sql}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The value as JSON text, without the quotes of `quoteOf`. */
function jsonOf(kind: Kind, sql: string): string {
  switch (kind) {
    case 'plain':
    case 'number':
      return sql
    case 'text':
      return `coalesce(to_json(${sql}), 'null')`
    case 'time':
      return `coalesce(to_char(${sql}, '\\"YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\\"'), 'null')`
    case 'json':
      return `coalesce(${sql}, 'null')`
  }
}

function quoteOf(kind: Kind): string {
  return kind === 'plain' ? '"' : ''
}

function jsonObjectOf(fields: Written[]): string {
  let before = '{'
  const parts = fields.map(([name, kind, sql]) => {
    const part = `'${before}"${name}":${quoteOf(kind)}', ${jsonOf(kind, sql)}`
    before = `${quoteOf(kind)},`
    return part
  })
  return `concat(${parts.join(',\n  ')}, '${before.slice(0, -1)}}')`
}

/** json_build_object would take twice as long as concat. */
export const memberJson = jsonObjectOf(
  Object.entries(FIELDS).map(([name, { kind, sql }]) => [name, kind, sql]),
)

/** A tombstone in the delta feed as JSON text. Expects its id and time in c. */
export const erasedJson = `concat('{"id":"', c.id, '","deletedAt":', ${jsonOf('time', 'c.at')}, '}')`

const FORMULA_CODES = [...FORMULA_STARTS].map((character) => character.charCodeAt(0)).join(',')

/** Text is quoted, and null is empty. Text that a spreadsheet would evaluate gets an apostrophe, which fromCsvText removes. */
function csvOf(kind: Kind, sql: string): string {
  switch (kind) {
    case 'number':
    case 'plain':
      return sql
    case 'time':
      return timeText(sql)
    case 'json':
      return `concat('"', replace(${sql}, '"', '""'), '"')`
    case 'text':
      return `case when ascii(${sql}) = any ('{${FORMULA_CODES}}') then '"''' else '"' end
  || replace(${sql}, '"', '""') || '"'`
  }
}

/** Removes the apostrophe that protects spreadsheets from the text of a CSV cell. */
export function fromCsvText(text: string): string {
  return text.startsWith("'") && FORMULA_STARTS.includes(text.charAt(1)) && text.length > 1
    ? text.slice(1)
    : text
}

const CSV_COLUMNS = Object.entries(FIELDS).flatMap(([name, { kind, sql, csv }]: [string, Field<TSchema>]) =>
  (csv ?? [[name, kind, sql] as const]).map(([column, columnKind, columnSql]) => ({
    column,
    sql: csvOf(columnKind, columnSql),
  })),
)

export const CSV_HEADER = [...CSV_COLUMNS.map(({ column }) => column), 'deletedAt'].join(',')

/** A line of CSV (RFC 4180) without its line end. */
export const memberCsv = `concat(${CSV_COLUMNS.map(({ sql }) => sql).join(",\n  ',', ")}, ',')`

export const erasedCsv = `concat(c.id, repeat(',', ${CSV_COLUMNS.length}), ${timeText('c.at')})`

/** Tracked activity, added to that of the member. `offset 0` makes it one lookup per member instead of a scan of the account. */
export const withTrackedActivity = `
  left join lateral (
    select event_count, first_seen_at, last_seen_at from tracked_activity
     where channel_oa_id = m.channel_oa_id and user_id = m.user_id offset 0) t on true`
