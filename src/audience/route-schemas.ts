import type { FastifySchema } from 'fastify'
import {
  BODY_FAILURES,
  CLIENT_FAILURES,
  failures,
  ifMatch,
  jsonBody,
  pathParameter,
  reference,
  success,
  TAGS,
  THREE_HEADERS,
} from '../http/schema-parts.ts'
import { Type } from '../http/typebox.ts'
import { Nullable } from '../http/validate.ts'
import { filterParameters } from './filters.ts'

const acceptedAge = Type.Object({
  'cache-control': Type.Optional(
    Type.String({
      description:
        '`max-age=N` accepts a page that is up to N seconds old, which a replica may serve. Without it, the page is current.',
    }),
  ),
})

const protectedRoute = { tags: [TAGS.audience], security: THREE_HEADERS }

/** @param limit members per page */
export function listSchema(limit: { default: number; maximum: number }): FastifySchema {
  return {
    ...protectedRoute,
    operationId: 'listAudience',
    summary: 'List members',
    description: `Returns one page of members, oldest first. All filters must match. To read the next page, repeat the request with
the same filters and \`cursor\` set to the \`nextCursor\` of this page. A page may be empty and still have a \`nextCursor\`.

With \`Accept: application/x-ndjson\` or \`text/csv\`, the response streams every match, read page by page. Streams accept neither \`limit\` nor
\`cursor\`, and they need HTTP/1.1.`,
    'x-response-headers': ['Vary'],
    querystring: listParameters(limit),
    headers: acceptedAge,
    response: {
      200: {
        description: `A page of members, or a stream of all matches. The body is null if the API key is not active.
A stream that fails after its first byte is cut off: the connection closes before the last chunk. Earlier failures are error responses.`,
        content: {
          'application/json': { schema: Nullable(reference('Page')) },
          'application/x-ndjson': { schema: reference('MemberLines') },
          'text/csv': { schema: reference('MemberTable') },
        },
      },
      ...failures({
        ...CLIENT_FAILURES,
        400: 'A query parameter is invalid or unknown. `details` identifies it.',
        410: '`updatedSince`, or the first page of the cursor, is from between a backup and its restore. Read the whole audience again.',
        429: 'Too many requests, or other streams of the API key, client or organization are open.',
        503: 'The database is unavailable, or too many streams are open.',
      }),
    },
  }
}

function listParameters(limit: { default: number; maximum: number }) {
  const { userId, externalId, relationship, tag, segment, q } = filterParameters
  return {
    type: 'object',
    properties: {
      userId: { ...userId, description: 'Returns the member with this user id of the channel.' },
      externalId: { ...externalId, description: 'Returns the member with this `externalId`.' },
      relationship: {
        type: 'string',
        enum: relationship.anyOf.map((value) => value.const),
        description: 'Returns members with this relationship.',
      },
      tag: { ...tag.anyOf[1], description: 'Returns members that have all of these tags.' },
      segment: {
        ...segment,
        description: 'Returns members of the segment with this name. Its condition must hold.',
      },
      q: { ...q, description: 'Returns members whose display name contains this text, ignoring case.' },
      updatedSince: {
        type: 'string',
        format: 'date-time',
        description:
          'Returns members that changed since this time, oldest change first, and a tombstone for each erased member. ' +
          'A member may be returned again.',
      },
      limit: { type: 'integer', minimum: 1, ...limit, description: 'Maximum number of members per page.' },
      cursor: { type: 'string', description: 'The `nextCursor` of the previous page.' },
    },
  }
}

export const updateSchema: FastifySchema = {
  ...protectedRoute,
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

export const eraseSchema: FastifySchema = {
  ...protectedRoute,
  operationId: 'eraseMember',
  summary: 'Erase a member',
  description:
    'Deletes the member, and removes the user id and content from stored events. Events that happened before the ' +
    'erasure do not bring the member back. A later event creates a new member.',
  params: pathParameter('id', 'Id of the member.'),
  headers: ifMatch('Erases the member only if it still has this version.'),
  response: {
    204: { type: 'null', description: 'The member was erased.' },
    ...failures({
      ...CLIENT_FAILURES,
      400: 'Step 1: the API key is not active for this client. Or If-Match is malformed.',
      404: 'Step 2: the scope has no such member.',
      412: 'Step 2: the member has another version than If-Match.',
      413: BODY_FAILURES[413],
      500: 'Step 3: the erasure failed, or the credentials could not be checked. Send the request again.',
      503: 'Statements of other accounts take too long. Send the request again.',
    }),
  },
}
