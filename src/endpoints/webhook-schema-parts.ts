/** What the schemas of all outgoing messages have in common. */
import { jsonBody, TAGS } from '../http/schema-parts.ts'
import { type TSchema, Type } from '../http/typebox.ts'

interface Outgoing {
  operationId: string
  summary: string
  description: string
  /** descriptions by name */
  headers: Record<string, string>
  schema: TSchema
  responses: Record<string, object>
}

/** A request that the service sends. Receivers need none of the headers with which clients authenticate. */
export function outgoing({ headers, schema, ...operation }: Outgoing) {
  const parameters = Object.entries(headers).map(([name, description]) => ({
    ...{ in: 'header', name, required: true, description },
    schema: { type: 'string' },
  }))
  return {
    post: {
      ...operation,
      tags: [TAGS.webhooks],
      security: [],
      parameters,
      requestBody: { required: true, ...jsonBody(schema) },
    },
  }
}

/** https://github.com/standard-webhooks/standard-webhooks */
export const STANDARD_WEBHOOK_HEADERS = {
  'webhook-id': 'Id of the message. Deduplicate by it.',
  'webhook-timestamp':
    'Time of the attempt in Unix seconds. Reject a message that is more than 5 minutes old.',
  'webhook-signature':
    '`v1,` and base64 of HMAC-SHA256(secret, "{webhook-id}.{webhook-timestamp}.{raw body}"). While a secret is rotated, two signatures ' +
    'are separated by a space.',
  'user-agent': 'Always `oa-audience`.',
}

/** The body of a message in the format of Standard Webhooks. */
export const standardMessage = (type: string, data: object) =>
  Type.Object({
    type: Type.Literal(type),
    timestamp: Type.String({ format: 'date-time' }),
    data: Type.Unsafe(data as TSchema),
  })

const RETRY_AFTER_OF_RECEIVER = {
  'Retry-After': {
    description:
      'Seconds or a date. A value that is longer than the backoff delays the next attempt, by up to 2 hours.',
    schema: { type: 'string' },
  },
}

/** What each response of a receiver means. */
export const RETRIED_RESPONSES = {
  '2XX': { description: 'The message is accepted. The body of the response is ignored.' },
  429: { description: 'The message is sent again later.', headers: RETRY_AFTER_OF_RECEIVER },
  503: { description: 'The message is sent again later.', headers: RETRY_AFTER_OF_RECEIVER },
  default: {
    description:
      'Any other status, a redirect, or no response within 10 s: the message is sent again after 5 s, 10 s, 20 s and so on, up to 2 hours. ' +
      'After 24 hours it has failed permanently.',
  },
}
