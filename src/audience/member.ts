/** The member as clients see it: its one shape, in SQL and in TypeScript. */
import type { Static } from 'typebox'
import Type from 'typebox'

/** Characters. LINE's longest user id has 68 (module channels); the rest is room for other platforms. */
export const USER_ID_MAX_LENGTH = 128

const Time = Type.String({ format: 'date-time', description: 'ISO 8601, UTC, milliseconds' })
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()])

export const MemberSchema = Type.Object({
  id: Type.String({ description: 'int64 as decimal digits' }),
  userId: Type.String(),
  displayName: Nullable(Type.String()),
  pictureUrl: Nullable(Type.String()),
  language: Nullable(Type.String()),
  relationship: Type.Union([Type.Literal('following'), Type.Literal('blocked'), Type.Literal('unknown')]),
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
  attributes: Type.Record(Type.String(), Type.Unknown()),
  version: Type.Integer({ minimum: 1 }),
  createdAt: Time,
  updatedAt: Time,
})

export type Member = Static<typeof MemberSchema>

const time = (expression: string) =>
  `to_char(${expression} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/**
 * The member as JSON text, built by PostgreSQL: rows pass through this process as they are. Expects
 * audience_member as m and tracked_activity, left joined, as t.
 */
export const memberJson = `json_build_object(
  'id', m.id::text,
  'userId', m.user_id,
  'displayName', m.display_name,
  'pictureUrl', m.picture_url,
  'language', m.language,
  'relationship', m.relationship,
  'followedAt', ${time('m.followed_at')},
  'blockedAt', ${time('m.blocked_at')},
  'firstSeenAt', ${time('least(m.first_seen_at, t.first_seen_at)')},
  'lastSeenAt', ${time('greatest(m.last_seen_at, t.last_seen_at)')},
  'eventCount', m.event_count + coalesce(t.event_count, 0),
  'conversation', case when m.conversation_id is not null then json_build_object(
    'id', m.conversation_id, 'status', m.conversation_status, 'updatedAt', ${time('m.conversation_at')}) end,
  'externalId', m.external_id,
  'tags', to_json(m.tags),
  'attributes', m.attributes,
  'version', m.version,
  'createdAt', ${time('m.created_at')},
  'updatedAt', ${time('m.updated_at')}
)::text`

/** A member's tracking activity counts from the moment it is a member, whenever it was told. */
export const withTrackedActivity =
  'left join tracked_activity t on t.channel_oa_id = m.channel_oa_id and t.user_id = m.user_id'
