/** The requests that the service sends, as `webhooks` of the OpenAPI document. docs/api.md says how they are signed and repeated. */
import { jsonBody, reference, TAGS } from './http/schema-parts.ts'
import { type TSchema, Type } from './http/typebox.ts'
import { Nullable } from './http/validate.ts'
import { ACCOUNT_STATUSES, REASONS } from './watch/account-status.ts'
import { ACCOUNTS_MAX } from './watch/notifications/content.ts'

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
const Cause = Nullable(Type.Enum(['service', 'line']))
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
export const NotifiedAccountSchema = Type.Object(notifiedAccount, {
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
    cause: Cause,
    count: Type.Integer({ minimum: 1, description: 'Number of accounts. It may exceed that of `accounts`.' }),
    accounts: Type.Array(reference('NotifiedAccount'), { maxItems: ACCOUNTS_MAX }),
  },
  { description: 'The fields of the first account, and all accounts with one reason.' },
)

const PlatformState = Type.Enum(['up', 'down'])
const PlatformStatus = Type.Object({
  before: PlatformState,
  after: PlatformState,
  reason: Nullable(Type.Literal('platform_unreachable')),
  message: Type.String(),
  link: Link,
  cause: Cause,
  since: Nullable(Time),
  until: Nullable(Time),
  count: Type.Integer({ minimum: 0, description: 'Number of accounts whose checks failed.' }),
})

export const webhooks = {
  'line.delivery': outgoing('onLineDelivery', 'Events from LINE', LineDelivery),
  ...standard({
    'member.created': ['onMemberCreated', 'A person became a member', reference('Member')],
    'member.updated': ['onMemberUpdated', 'A member changed', reference('Member')],
    'member.erased': ['onMemberErased', 'A member was erased', reference('ErasedMember')],
    'account.verified': ['onAccountVerified', 'The account was verified', reference('Verification')],
    'endpoint.test': ['onEndpointTest', 'A test of an endpoint', Type.Object({ endpointId: Type.String() })],
    'account.status': ['onAccountStatus', 'The status of accounts changed', AccountStatus],
    'platform.status': ['onPlatformStatus', "LINE's API went down or came back", PlatformStatus],
    'notification.test': [
      'onNotificationTest',
      'A test of a notification channel',
      Type.Object({ message: Type.String(), link: Link }),
    ],
  }),
}
