/** Building blocks of the `schema` that each route declares for the OpenAPI document. */
import { type TSchema, Type } from './typebox.ts'

/** Groups of endpoints, in the order in which the documentation page shows them. */
export const TAGS = {
  audience: 'Audience',
  account: 'Official account',
  intake: 'Incoming events',
  service: 'Service',
  webhooks: 'Outgoing webhooks',
} as const

export const TAG_DESCRIPTIONS: Record<(typeof TAGS)[keyof typeof TAGS], string> = {
  [TAGS.audience]: 'The members of an official account, for clients with an API key.',
  [TAGS.account]: 'The official account of the API key.',
  [TAGS.intake]: 'Events from LINE, the support chat, web pages and apps.',
  [TAGS.service]: 'The state of the service.',
  [TAGS.webhooks]: 'Requests that the service sends to the endpoints that operators configure.',
}

export const THREE_HEADERS = [{ clientId: [], clientSecret: [], apiKey: [] }]

export const audienceRoute = { tags: [TAGS.audience], security: THREE_HEADERS }

export const reference = (name: string) => Type.Ref(`#/components/schemas/${name}`)

export const jsonBody = (schema: TSchema | Record<string, unknown>) => ({
  content: { 'application/json': { schema } },
})

const integerHeader = (description: string) => ({ type: 'integer', description })

const RETRY_AFTER = {
  'Retry-After': integerHeader('Number of seconds to wait before the next attempt.'),
}

const namedHeader = (type: 'integer' | 'string', description: string) => ({ description, schema: { type } })

/** Headers of every response, unless the rate limit is off. */
export const RATE_LIMIT_HEADERS = {
  'RateLimit-Limit': namedHeader(
    'integer',
    'Number of requests that a client address may send in one window.',
  ),
  'RateLimit-Remaining': namedHeader('integer', 'Number of requests left in the current window.'),
  'RateLimit-Reset': namedHeader('integer', 'Number of seconds until the current window ends.'),
}

/** Headers of every response of the operations that list them in `x-response-headers`. */
export const OPERATION_HEADERS = {
  Vary: namedHeader('string', 'Request header on which the response depends.'),
  'Access-Control-Allow-Origin': namedHeader('string', 'The origin of the request, if it has one.'),
  'Access-Control-Allow-Credentials': namedHeader('string', '`true` if the request has an origin.'),
}

const TOO_MANY_REQUESTS = 'The client address has sent too many requests. Wait for the time in Retry-After.'

export const success = (name: string, description: string, headers?: Record<string, unknown>) => ({
  200: { description, ...(headers && { headers }), ...jsonBody(reference(name)) },
})

const CHALLENGE = { 'WWW-Authenticate': { type: 'string', description: 'A scheme that no browser knows.' } }

/** Error responses by status, and the 429 of every route. A 503 has a Retry-After header. */
export function failures(descriptions: Record<number, string>): Record<number, unknown> {
  const headersOf: Record<string, object> = { 401: CHALLENGE, 429: RETRY_AFTER, 503: RETRY_AFTER }
  return Object.fromEntries(
    Object.entries({ 429: TOO_MANY_REQUESTS, ...descriptions }).map(([status, description]) => {
      const headers = headersOf[status]
      return [status, { description, ...(headers && { headers }), ...jsonBody(reference('Error')) }]
    }),
  )
}

export const BODY_FAILURES = {
  413: 'The body is larger than 1 MiB.',
  415: 'The body is compressed, or its content type is not application/json.',
}

export const CLIENT_FAILURES = {
  401: 'A credential header is missing, or the client id and secret do not match an active client.',
  500: 'The request failed. The service has logged the reason under the requestId of the error.',
}

/** The value of If-Match is an ETag that an earlier PUT returned. */
export const ifMatch = (description: string) =>
  Type.Object({ 'if-match': Type.Optional(Type.String({ description, examples: ['"4"'] })) })

export const pathParameter = (name: string, description: string) =>
  Type.Object({ [name]: Type.String({ description }) })

// Parts of the OpenAPI document that all routes for events share.

export const EXAMPLE_USER_ID = 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8'

export const RECEIPT = success('Receipt', 'Every event is committed to disk.')

export const INTAKE_FAILURES = {
  413: BODY_FAILURES[413],
  415: 'The body is compressed.',
  503: 'No event was stored. Send the request again.',
}

export const SIGNED_FAILURES = {
  ...INTAKE_FAILURES,
  403: 'The signature is missing or does not match.',
  404: 'There is no such official account.',
}

/** Endpoints need none of the headers with which clients authenticate. */
export const outgoing = (operationId: string, summary: string, schema: TSchema) => ({
  post: {
    operationId,
    summary,
    tags: [TAGS.webhooks],
    security: [],
    requestBody: { required: true, ...jsonBody(schema) },
    responses: {
      '2XX': { description: 'The message is accepted.' },
      410: { description: 'The endpoint is gone. Nothing is sent until an operator resumes it.' },
      default: { description: 'The message is sent again, for 24 hours.' },
    },
  },
})

export const Time = Type.String({ format: 'date-time' })

/** The messages of Standard Webhooks: `[operation id, summary, data]` by type. */
export const standard = (messages: Record<string, [string, string, TSchema]>) =>
  Object.fromEntries(
    Object.entries(messages).map(([type, [operationId, summary, data]]) => {
      const schema = Type.Object({ type: Type.Literal(type), timestamp: Time, data })
      return [type, outgoing(operationId, summary, schema)]
    }),
  )
