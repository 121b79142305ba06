/** The OpenAPI 3.1 document of the service, put together from the schemas that validate. */
import Type, { type TSchema } from 'typebox'
import { ClaimsSchema, VerificationSchema } from './accounts/verification.ts'
import { filterParameters } from './audience/filters.ts'
import { LIMIT_DEFAULT, LIMIT_MAX } from './audience/list.ts'
import { MemberSchema } from './audience/member.ts'
import { MemberUpdateSchema } from './audience/update.ts'
import { ErrorEnvelopeSchema } from './http/error-envelope.ts'
import { Nullable } from './http/validate.ts'
import { deliveryPaths, LINE } from './intake/line/channel.ts'

const ReceiptSchema = Type.Object({ accepted: Type.Integer(), duplicates: Type.Integer() })

const TrackingReceiptSchema = Type.Object({
  success: Type.Boolean(),
  accepted: Type.Integer(),
  duplicates: Type.Integer(),
  rejected: Type.Array(Type.Object({ index: Type.Integer(), message: Type.String() })),
})

const ErasedMemberSchema = Type.Object({
  id: Type.String(),
  deletedAt: Type.String({ format: 'date-time' }),
})

const reference = (name: string) => ({ $ref: `#/components/schemas/${name}` }) as unknown as TSchema

const PageSchema = Type.Object({
  data: Type.Array(Type.Union([reference('Member'), reference('ErasedMember')])),
  nextCursor: Nullable(Type.String()),
})

const schemas = {
  Member: MemberSchema,
  ErasedMember: ErasedMemberSchema,
  Page: PageSchema,
  MemberUpdate: MemberUpdateSchema,
  Claims: ClaimsSchema,
  Verification: VerificationSchema,
  Receipt: ReceiptSchema,
  TrackingReceipt: TrackingReceiptSchema,
  Error: ErrorEnvelopeSchema,
}

/** Requests that the tests send. */
const examples = {
  delivery: {
    destination: 'U8e742f61d673b39c7fff3cecb7536ef0',
    events: [
      {
        type: 'follow',
        mode: 'active',
        timestamp: 1700000000000,
        webhookEventId: '01HF7YAT00AAAAAAAAAAAAAAAA',
        deliveryContext: { isRedelivery: false },
        source: { type: 'user', userId: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8' },
      },
    ],
  },
  callback: {
    event: 'conversation_status_changed',
    id: 31,
    status: 'resolved',
    channel: 'Channel::Line',
    contact_inbox: { source_id: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8' },
    updated_at: 1700000060.5,
  },
  tracking: {
    writeKey: '{trackingKey}',
    batch: [
      {
        type: 'page',
        userId: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8',
        messageId: 'page-1',
        properties: { path: '/menu' },
      },
    ],
  },
  update: { externalId: 'customer-1', tags: ['vip'], attributes: { cups: 3 } },
  claims: { testWebhook: false },
}

const json = (schema: string, example?: unknown) => ({
  'application/json': {
    schema: reference(schema),
    ...(example === undefined ? {} : { example }),
  },
})

const ok = (schema: string, description: string) => ({ 200: { description, content: json(schema) } })
const fails = (reasons: Record<number, string>) =>
  Object.fromEntries(
    Object.entries(reasons).map(([status, description]) => [status, { description, content: json('Error') }]),
  )

/** @param description which version it names */
const ifMatch = (description: string) => ({
  name: 'if-match',
  in: 'header',
  description: `${description}, in quotes as in its ETag`,
  schema: { type: 'string', examples: ['"4"'] },
})

const pathParameter = (name: string, description: string) => ({
  name,
  in: 'path',
  required: true,
  description,
  schema: { type: 'string' },
})

const FILTER_WORDS: Record<string, string> = {
  userId: 'this person',
  externalId: 'the member with this externalId',
  relationship: 'in this follow state',
  tag: 'with this tag; repeated: with all of them',
  q: 'with this part in the display name, in any case',
  updatedSince: 'changed since, oldest change first, and erased members: a delta feed',
}

const listParameters = [
  ...Object.entries(filterParameters).map(([name, schema]) => ({
    name,
    in: 'query',
    description: FILTER_WORDS[name],
    schema: name === 'updatedSince' ? { type: 'string', format: 'date-time' } : schema,
  })),
  {
    name: 'limit',
    in: 'query',
    description: 'members a page',
    schema: { type: 'integer', minimum: 1, maximum: LIMIT_MAX, default: LIMIT_DEFAULT },
  },
  { name: 'cursor', in: 'query', description: 'nextCursor of the page before', schema: { type: 'string' } },
]

const LIMITED = { 429: 'too many requests from this address' }
const CLIENT_FAILURES = {
  401: 'credentials missing or wrong',
  ...LIMITED,
  500: 'the credentials could not be looked up, or a fault of ours',
}
const BODY_FAILURES = {
  413: 'the body is larger than 1 MiB',
  415: 'the body is compressed, or not what it is called',
}
const DELIVERY_FAILURES = { ...BODY_FAILURES, ...LIMITED, 503: 'nothing was kept: send it again' }
const protectedBy = [{ clientId: [], clientSecret: [], apiKey: [] }]

const delivery = {
  operationId: 'receiveLineDelivery',
  summary: "LINE's webhook",
  description: 'Signed with the channel secret over the raw body (x-line-signature).',
  parameters: [
    pathParameter('id', 'the account'),
    { name: 'x-line-signature', in: 'header', required: true, schema: { type: 'string' } },
  ],
  requestBody: {
    required: true,
    content: { 'application/json': { schema: { type: 'object' }, example: examples.delivery } },
  },
  responses: {
    ...ok('Receipt', 'every event is on disk'),
    ...fails({
      400: 'no JSON, or no events',
      403: 'the signature is missing or wrong',
      404: 'no such account',
      ...DELIVERY_FAILURES,
    }),
  },
}

const [linePath = '', capitalisedPath = ''] = deliveryPaths('{id}')

/** @param version of the package */
export function openApi(version: string): Record<string, unknown> {
  const document = {
    openapi: '3.1.0',
    info: {
      title: 'oa-audience',
      version,
      description:
        'Keeps the audience of LINE official accounts. Ids are int64 as decimal text, times ISO 8601 in UTC.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    paths: {
      '/api': {
        get: {
          operationId: 'getService',
          summary: 'Name and version',
          responses: {
            200: {
              description: 'the service',
              content: { 'application/json': { schema: { type: 'object' } } },
            },
            ...fails(LIMITED),
          },
        },
      },
      '/api/health': {
        get: {
          operationId: 'getHealth',
          summary: 'Whether it is well',
          responses: {
            200: { description: 'well', content: { 'application/json': { schema: { type: 'object' } } } },
            ...fails({ ...LIMITED, 503: 'the database does not answer, or the service is shutting down' }),
          },
        },
      },
      [linePath]: { post: delivery },
      [capitalisedPath]: { post: { ...delivery, operationId: 'receiveLineDeliveryCapitalised' } },
      '/api/mbox/callback/{oaHash}': {
        post: {
          operationId: 'receiveChatCallback',
          summary: "The support chat's webhook",
          parameters: [pathParameter('oaHash', 'names the account, and is secret')],
          requestBody: {
            required: true,
            content: { 'application/json': { schema: {}, example: examples.callback } },
          },
          responses: {
            ...ok('Receipt', 'every event is on disk'),
            ...fails({
              400: 'no webhook',
              403: 'the signature is missing or wrong',
              404: 'no such account',
              ...DELIVERY_FAILURES,
            }),
          },
        },
      },
      '/api/tracking': {
        post: {
          operationId: 'receiveTracking',
          summary: "Segment's HTTP shape, from any origin",
          description:
            'The tracking key: `writeKey` in the body, the user name of Basic authentication, or `?writeKey=` in the address.',
          requestBody: {
            required: true,
            content: {
              'application/json': { schema: {}, example: examples.tracking },
              'text/plain': { schema: { type: 'string', description: 'the same, from a beacon' } },
            },
          },
          responses: {
            ...ok('TrackingReceipt', 'accepted events are on disk; rejected ones are named'),
            ...fails({ 400: 'unknown key, or nothing to read', ...DELIVERY_FAILURES }),
          },
        },
      },
      '/api/audience': {
        get: {
          operationId: 'listAudience',
          summary: 'A page of members, or with Accept a stream of all that match',
          security: protectedBy,
          parameters: listParameters,
          responses: {
            200: {
              description: 'members; null where the key has no scope',
              content: {
                'application/json': { schema: Nullable(reference('Page')) },
                'application/x-ndjson': { schema: { type: 'string' } },
                'text/csv': { schema: { type: 'string' } },
              },
            },
            ...fails({
              400: 'a parameter is wrong',
              ...CLIENT_FAILURES,
              503: 'the database is busy, or too many streams',
            }),
          },
        },
      },
      '/api/audience/{id}': {
        put: {
          operationId: 'updateMember',
          summary: 'Sets externalId, tags, attributes',
          security: protectedBy,
          parameters: [pathParameter('id', 'the member'), ifMatch('the version that is to be changed')],
          requestBody: { required: true, content: json('MemberUpdate', examples.update) },
          responses: {
            ...ok('Member', 'the member as it is now; ETag is its version'),
            ...fails({
              400: 'a field is wrong',
              ...CLIENT_FAILURES,
              404: 'no such member in this scope',
              409: 'the externalId is taken',
              412: 'the member has changed',
              ...BODY_FAILURES,
              500: 'the key has no scope, the credentials could not be looked up, or a fault of ours',
              503: 'the database is busy or away',
            }),
          },
        },
        delete: {
          operationId: 'eraseMember',
          summary: 'Erases the person',
          security: protectedBy,
          parameters: [pathParameter('id', 'the member'), ifMatch('the version that is to be erased')],
          responses: {
            204: { description: 'erased' },
            ...fails({
              400: 'Step 1: no scope',
              ...CLIENT_FAILURES,
              404: 'Step 2: no such member',
              412: 'Step 2: the member has changed',
              413: BODY_FAILURES[413],
              500: 'Step 3: send it again; or the credentials could not be looked up',
            }),
          },
        },
      },
      [`/api/${LINE}-oa/verify`]: {
        post: {
          operationId: 'verifyAccount',
          summary: 'Asks the platform whether the account is set up',
          security: protectedBy,
          requestBody: { required: false, content: json('Claims', examples.claims) },
          responses: {
            ...ok('Verification', 'the outcome, good or bad'),
            ...fails({
              400: 'a claim is wrong',
              ...CLIENT_FAILURES,
              404: 'no account in scope',
              ...BODY_FAILURES,
              503: 'the platform does not answer',
            }),
          },
        },
      },
    },
    components: {
      schemas,
      securitySchemes: {
        clientId: { type: 'apiKey', in: 'header', name: 'x-client-id' },
        clientSecret: { type: 'apiKey', in: 'header', name: 'x-client-secret' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
    },
  }
  // What only the validator understands stays here.
  return JSON.parse(
    JSON.stringify(document, (key, value: unknown) => (key.startsWith('~') ? undefined : value)),
  )
}
