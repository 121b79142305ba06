/** PUT /api/audience/:id: changes the fields of a member that clients may set. */
import type { FastifyInstance, FastifyRequest, FastifySchema, onRequestAsyncHookHandler } from 'fastify'
import { type Scope, scopeOf } from '../accounts/scope.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { parsePathId } from '../http/path-id.ts'
import {
  audienceRoute,
  BODY_FAILURES,
  CLIENT_FAILURES,
  failures,
  ifMatch,
  jsonBody,
  pathParameter,
  reference,
  success,
} from '../http/schema-parts.ts'
import { type Static, Type } from '../http/typebox.ts'
import { checker, readIfMatch, refuseInput, StorableText } from '../http/validate.ts'
import { int8Array, textArray } from '../postgres/binary-array.ts'
import type { Database } from '../postgres/database.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { isStorableText } from '../postgres/storable.ts'
import {
  Attribute,
  EXTERNAL_ID_MAX_LENGTH,
  memberJson,
  TAG_MAX_LENGTH,
  withTrackedActivity,
} from './member.ts'

export const TAGS_MAX = 100
/** Bytes of JSON. Lists return the attributes of every member. */
const ATTRIBUTES_MAX_BYTES = 16 * 1024

/** A field that is left out keeps its value; null clears it. */
export const MemberUpdateSchema = Type.Object(
  {
    externalId: Type.Optional(
      Type.Union([StorableText({ minLength: 1, maxLength: EXTERNAL_ID_MAX_LENGTH }), Type.Null()]),
    ),
    tags: Type.Optional(
      Type.Union([
        Type.Array(StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH }), { maxItems: TAGS_MAX }),
        Type.Null(),
      ]),
    ),
    attributes: Type.Optional(
      Type.Union([
        // Not Type.Record: it matches names with `.*`, so a name with a line break would not be validated.
        Type.Unsafe<Record<string, Static<typeof Attribute>>>(
          Type.Object({}, { additionalProperties: Attribute }),
        ),
        Type.Null(),
      ]),
    ),
  },
  { additionalProperties: false },
)

export type MemberUpdate = Static<typeof MemberUpdateSchema>

const checkShape = checker(MemberUpdateSchema)

export function checkUpdate(value: unknown): MemberUpdate {
  const update = checkShape(value)
  for (const [name, attribute] of Object.entries(update.attributes ?? {})) {
    if (!isStorableText(name) || (typeof attribute === 'string' && !isStorableText(attribute))) {
      refuseInput('attributes', 'must not contain the character U+0000 or half a surrogate pair')
    }
  }
  if (Buffer.byteLength(JSON.stringify(update.attributes ?? {})) > ATTRIBUTES_MAX_BYTES) {
    refuseInput('attributes', `must not be larger than ${ATTRIBUTES_MAX_BYTES} bytes of JSON`)
  }
  return update
}

const updateSchema: FastifySchema = {
  ...audienceRoute,
  operationId: 'updateMember',
  summary: 'Update a member',
  description:
    'Sets `externalId`, `tags` and `attributes`. An update that changes nothing keeps the version.',
  params: pathParameter('id', 'Id of the member.'),
  headers: ifMatch('Updates the member only if it still has this version.'),
  body: jsonBody(reference('MemberUpdate')),
  response: {
    ...success('Member', 'The updated member.', {
      ETag: { type: 'string', description: 'Version of the member in quotes. Send it back as If-Match.' },
    }),
    ...failures({
      ...CLIENT_FAILURES,
      ...BODY_FAILURES,
      400: 'The body is not valid JSON, If-Match is malformed, or a field is invalid. `details` identifies the field.',
      404: 'The scope has no such member.',
      409: 'Another member of the scope has this `externalId`.',
      412: 'The member has another version than If-Match.',
      500: 'The API key is not active, or the request failed.',
      503: 'The database is unavailable.',
    }),
  },
}

export function updateRoute(
  app: FastifyInstance,
  database: Database,
  guard: onRequestAsyncHookHandler,
): void {
  const options = { schema: updateSchema, onRequest: guard }
  app.put<{ Params: { id: string } }>('/api/audience/:id', options, async (request, reply) => {
    const scope = scopeOf(request)
    if (scope === null) throw new AppError('update_without_scope')
    const id = parsePathId(request.params.id)
    if (id === null) throw new AppError('unknown_member')
    const update = readUpdate(request)
    const { json, version } = await updateMember(
      database.forTenant(scope),
      scope,
      id,
      update,
      readIfMatch(request),
    )
    return reply.header('etag', `"${version}"`).type('application/json; charset=utf-8').send(json)
  })
}

function readUpdate(request: FastifyRequest): MemberUpdate {
  const bytes = bodyBytes(request)
  const type = request.contentType?.split(';')[0]?.trim().toLowerCase()
  if (type !== undefined && type !== 'application/json') throw new AppError('unsupported_media_type')
  return checkUpdate(parseUtf8Json(bytes))
}

/** Expects the member as m, and as e the new values with a flag for each field to change. Null clears a field. */
const IS_CHANGED = `(e.sets_external_id and m.external_id is distinct from e.external_id
                             or e.sets_tags and m.tags is distinct from coalesce(e.tags, '{}')
                             or e.sets_attributes and m.attributes is distinct from coalesce(e.attributes, '{}'))`

/**
 * An update that changes nothing keeps the version. Another program may have loaded the greatest bigint as a version, so 1 follows
 * it. If-Match compares versions only for equality.
 */
export const CHANGES = `
             external_id = case when e.sets_external_id then e.external_id else m.external_id end,
             tags = case when e.sets_tags then coalesce(e.tags, '{}') else m.tags end,
             attributes = case when e.sets_attributes then coalesce(e.attributes, '{}') else m.attributes end,
             version = case when ${IS_CHANGED} then m.version % 9223372036854775807 + 1 else m.version end,
             updated_at = case when ${IS_CHANGED} then greatest(clock_timestamp(), m.updated_at) else m.updated_at end,
             change = case when ${IS_CHANGED} then next_change() else m.change end`

/**
 * $1 bigint: account; $2 bigint: organization; $3 bigint: member; $4 bigint[]: allowed versions, null for any;
 * $5 boolean: change externalId to $6 text; $7 boolean: change tags to $8 text[]; $9 boolean: change attributes to $10 jsonb;
 * $11 text: the API key's id, $12 text: the name of the operator or command, or empty. The trigger record_member_edit reads both.
 *
 * PostgreSQL evaluates the statement on the locked row, so concurrent changes of different fields are both kept.
 */
const applyUpdate = statement('member-update')`
    with updated as (
      update audience_member m
         set ${CHANGES}
        from (select $5::boolean as sets_external_id, $6::text as external_id, $7::boolean as sets_tags, $8::text[] as tags,
                     $9::boolean as sets_attributes, $10::jsonb as attributes) e
       where m.channel_oa_id = $1 and m.organization_id = $2 and m.id = $3
         and ($4::bigint[] is null or m.version = any ($4))
         and set_config('oa_audience.api_key_id', $11, true) is not null
         and set_config('oa_audience.actor', $12, true) is not null
      returning m.*
    )
    select m.version, ${memberJson} as json from updated m ${withTrackedActivity}`

/** Distinguishes a stale version from an unknown member. $1 bigint: account; $2 bigint: organization; $3 bigint: member */
const selectVersion = statement('member-version')`
    select version from audience_member where channel_oa_id = $1 and organization_id = $2 and id = $3`

export function updateError(error: unknown): unknown {
  return violatedConstraint(error) === 'audience_member_external_id'
    ? new AppError('external_id_taken')
    : error
}

export async function updateMember(
  tenant: Queryable,
  scope: Scope,
  id: bigint,
  update: MemberUpdate,
  allowedVersions: bigint[] | null,
): Promise<{ version: bigint; json: string }> {
  const { externalId, tags, attributes } = update
  const values = [
    scope.accountId,
    scope.organizationId,
    id,
    allowedVersions && int8Array(allowedVersions),
    String(externalId !== undefined),
    externalId ?? null,
    String(tags !== undefined),
    tags ? textArray(tags) : null,
    String(attributes !== undefined),
    attributes ? JSON.stringify(attributes) : null,
    String(scope.keyId ?? ''),
    scope.actorName ?? '',
  ]
  try {
    const [member] = await tenant.query<{ version: bigint; json: string }>(applyUpdate, values)
    if (member !== undefined) return member
  } catch (error) {
    throw updateError(error)
  }
  const [found] = await tenant.query(selectVersion, [scope.accountId, scope.organizationId, id])
  throw new AppError(found === undefined ? 'unknown_member' : 'stale_version')
}
