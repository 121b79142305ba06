/** The named schemas and the webhooks of the OpenAPI document. Route schemas refer to schemas by name. */
import { ClaimsSchema, VerificationSchema } from './accounts/verification.ts'
import { CSV_HEADER, type Member, MemberSchema } from './audience/member.ts'
import { MemberUpdateSchema } from './audience/update.ts'
import { ErrorEnvelopeSchema } from './http/error-envelope.ts'
import { jsonBody, reference, TAGS } from './http/schema-parts.ts'
import { type TSchema, Type } from './http/typebox.ts'
import { Nullable } from './http/validate.ts'
import { ACCOUNT_STATUSES, REASONS } from './watch/account-status.ts'
import { ACCOUNTS_MAX } from './watch/notifications/content.ts'

const Receipt = Type.Object(
  {
    accepted: Type.Integer({ description: 'Number of events stored by this request.' }),
    duplicates: Type.Integer({ description: 'Number of events that were already stored.' }),
  },
  { examples: [{ accepted: 1, duplicates: 0 }] },
)

const TrackingReceipt = Type.Object(
  {
    success: Type.Boolean(),
    ...Receipt.properties,
    rejected: Type.Array(
      Type.Object({
        index: Type.Integer({ description: 'Position of the event in the request, from 0.' }),
        message: Type.String({ description: 'Why the event was not stored.' }),
      }),
    ),
  },
  { examples: [{ success: true, accepted: 1, duplicates: 0, rejected: [] }] },
)

const MEMBER: Member = {
  id: '28163270815507',
  userId: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8',
  displayName: 'Ann',
  pictureUrl: null,
  language: 'th',
  relationship: 'following',
  followedAt: '2023-11-14T22:13:20.000Z',
  blockedAt: null,
  firstSeenAt: '2023-11-14T22:13:20.000Z',
  lastSeenAt: '2023-11-14T22:13:20.000Z',
  eventCount: 1,
  conversation: null,
  externalId: null,
  tags: ['vip'],
  attributes: { cups: 3 },
  version: 1,
  createdAt: '2026-11-20T22:05:17.448Z',
  updatedAt: '2026-11-20T22:05:17.448Z',
}
const ERASED = { id: '28163270815508', deletedAt: '2026-11-21T09:00:00.000Z' }

const ErasedMember = Type.Object(
  { id: Type.String(), deletedAt: Type.String({ format: 'date-time' }) },
  {
    description:
      'A member that was erased. Only pages and streams of a query with `updatedSince` contain these.',
    examples: [ERASED],
  },
)

const MemberOrErased = Type.Union([reference('Member'), reference('ErasedMember')])

const Page = Type.Object(
  {
    data: Type.Array(MemberOrErased),
    nextCursor: Nullable(
      Type.String({ description: 'Send it as `cursor` to get the next page. It is null on the last page.' }),
    ),
  },
  { examples: [{ data: [MEMBER], nextCursor: null }] },
)

const MemberLines = Type.String({
  description: 'One member per line, as JSON. Each line matches `contentSchema`, and ends with a line feed.',
  contentMediaType: 'application/x-ndjson',
  contentSchema: MemberOrErased,
  examples: [`${JSON.stringify(MEMBER)}\n${JSON.stringify(ERASED)}\n`],
})

const MemberTable = Type.String({
  description: `RFC 4180 in UTF-8. The first line has the names of the columns. Null is an empty cell, and \`tags\` and \`attributes\` are JSON.
Text that a spreadsheet would evaluate as a formula begins with an apostrophe. An erased member has only \`id\` and \`deletedAt\`.`,
  contentMediaType: 'text/csv',
  examples: [
    `${CSV_HEADER}\r\n28163270815507,"U4af4980629f0d2d3a1a2a3a4a5a6a7a8","Ann",,"th",following,2023-11-14T22:13:20.000Z,,` +
      `2023-11-14T22:13:20.000Z,2023-11-14T22:13:20.000Z,1,,,,,"[""vip""]","{""cups"": 3}",1,2026-11-20T22:05:17.448Z,` +
      '2026-11-20T22:05:17.448Z,\r\n',
  ],
})

// The requests that the service sends. docs/api.md says how they are signed and repeated.

/** Receivers need none of the headers with which clients authenticate. */
const outgoing = (operationId: string, summary: string, schema: TSchema) => ({
  post: {
    operationId,
    summary,
    tags: [TAGS.webhooks],
    security: [],
    requestBody: { required: true, ...jsonBody(schema) },
    responses: {
      '2XX': { description: 'The message is accepted.' },
      410: { description: 'The receiver is gone. Nothing is sent until an operator resumes it.' },
      default: { description: 'The message is sent again, for 24 hours.' },
    },
  },
})

const Time = Type.String({ format: 'date-time' })

/** The messages of Standard Webhooks: `[operation id, summary, data]` by type. */
const standard = (messages: Record<string, [string, string, TSchema]>) =>
  Object.fromEntries(
    Object.entries(messages).map(([type, [operationId, summary, data]]) => {
      const schema = Type.Object({ type: Type.Literal(type), timestamp: Time, data })
      return [type, outgoing(operationId, summary, schema)]
    }),
  )

const LineDelivery = Type.Object({
  destination: Type.String({ description: 'User id of the bot that LINE sent the events to.' }),
  events: Type.Array(Type.Object({}, { additionalProperties: true }), {
    description: 'The events as LINE sent them. Empty in a test delivery.',
  }),
})

const Status = Type.Enum([...ACCOUNT_STATUSES])
const Link = Nullable(
  Type.String({ description: 'The page in the console. It is null without CONSOLE_URL.' }),
)

const notifiedAccount = {
  accountId: Type.String(),
  name: Type.String(),
  organizationId: Type.String(),
  before: Status,
  after: Status,
  reason: Nullable(
    Type.Enum(Object.keys(REASONS), { description: 'Null after a recovery. Later versions may add values.' }),
  ),
  message: Nullable(Type.String()),
  fix: Nullable(Type.String()),
  link: Link,
}

/** The component to which the schema of `account.status` refers. */
const NotifiedAccountSchema = Type.Object(notifiedAccount, {
  examples: [
    {
      accountId: '1',
      name: 'Cafe Alpha',
      organizationId: '1',
      before: 'ok',
      after: 'broken',
      reason: 'suspended',
      message: 'LINE has suspended the account.',
      fix: 'Ask LINE for the reason in LINE Official Account Manager.',
      link: 'https://console.example.com/accounts/1',
    },
  ],
})

const AccountStatus = Type.Object(
  {
    ...notifiedAccount,
    reminder: Type.Optional(Type.Literal(true)),
    count: Type.Integer({ minimum: 1, description: 'Number of accounts. It may exceed that of `accounts`.' }),
    accounts: Type.Array(reference('NotifiedAccount'), { maxItems: ACCOUNTS_MAX }),
  },
  { description: 'The fields of the first account, and all accounts with one reason.' },
)

export const webhooks = {
  'line.delivery': outgoing('onLineDelivery', 'Events from LINE', LineDelivery),
  ...standard({
    'member.created': ['onMemberCreated', 'A person became a member', reference('Member')],
    'member.updated': ['onMemberUpdated', 'A member changed', reference('Member')],
    'member.erased': ['onMemberErased', 'A member was erased', reference('ErasedMember')],
    'account.verified': ['onAccountVerified', 'The account was verified', reference('Verification')],
    'endpoint.test': ['onEndpointTest', 'A test of an endpoint', Type.Object({ endpointId: Type.String() })],
    'account.status': ['onAccountStatus', 'The status of accounts changed', AccountStatus],
    'notification.test': [
      'onNotificationTest',
      'A test of a notification channel',
      Type.Object({ message: Type.String(), link: Link }),
    ],
  }),
}

export const componentSchemas = {
  Member: { ...MemberSchema, examples: [MEMBER] },
  ErasedMember,
  Page,
  MemberLines,
  MemberTable,
  MemberUpdate: {
    ...MemberUpdateSchema,
    description: 'A field that is left out keeps its value. A field that is null is cleared.',
    examples: [{ externalId: 'customer-1', tags: ['vip'], attributes: { cups: 3 } }],
  },
  Claims: {
    ...ClaimsSchema,
    description: 'What the caller expects of the account. The ids are compared with those that LINE reports.',
    examples: [{ testWebhook: false }],
  },
  Verification: {
    ...VerificationSchema,
    examples: [
      {
        verified: false,
        account: {
          userId: 'U8e742f61d673b39c7fff3cecb7536ef0',
          basicId: '@abc1234',
          premiumId: null,
          displayName: 'Corner Coffee',
          pictureUrl: null,
          chatMode: 'bot',
          markAsReadMode: 'auto',
        },
        accountType: 'verified_or_premium',
        webhook: { endpoint: 'https://oa.example.com/api/line/1', active: false, matches: true },
        checks: [
          { name: 'access_token', ok: true, message: 'The platform accepts the access token' },
          {
            name: 'webhook_active',
            ok: false,
            message: 'The platform sends no webhooks: in the LINE Developers Console switch on "Use webhook"',
            reason: 'webhook_off',
          },
        ],
        checkedAt: '2026-11-21T09:00:00.000Z',
      },
    ],
  },
  Receipt,
  TrackingReceipt,
  NotifiedAccount: NotifiedAccountSchema,
  Error: {
    ...ErrorEnvelopeSchema,
    examples: [
      {
        statusCode: 400,
        error: 'Bad Request',
        message: 'The input is invalid',
        details: [{ path: 'limit', message: 'must be a whole number from 1 to 200' }],
        requestId: '0b7f8a0e-4a7e-4a4b-8f57-3f0f0c6f5a11',
      },
    ],
  },
}
