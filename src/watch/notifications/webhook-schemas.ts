/** The messages to notification channels of the format `webhook`, as `webhooks` of the OpenAPI document. */
import { standardWebhooks } from '../../endpoints/webhook-schemas.ts'
import { reference } from '../../http/schema-parts.ts'
import { type TSchema, Type } from '../../http/typebox.ts'
import { Nullable } from '../../http/validate.ts'
import { ACCOUNT_STATUSES, REASONS } from '../account-status.ts'
import { ACCOUNTS_MAX } from './content.ts'

const GONE = 'The receiver is gone. The channel is paused until an operator resumes it.'

const Time = Type.String({ format: 'date-time' })
const Status = Type.Enum([...ACCOUNT_STATUSES])
const Message = Type.String({ description: 'An English sentence for people. It may change.' })
const Link = Nullable(
  Type.String({ description: 'The page in the console. It is null without CONSOLE_URL.' }),
)
const PlatformStatus = Type.Enum(['up', 'down'])

const accountFields = {
  accountId: Type.String({ description: 'Id of the official account, as decimal digits.' }),
  name: Type.String(),
  organizationId: Type.String(),
  before: Status,
  after: Status,
  reason: Nullable(
    Type.Enum(Object.keys(REASONS), {
      description: 'The problem, for programs. It is null after a recovery. Later versions may add values.',
    }),
  ),
  message: Nullable(Message),
  fix: Nullable(
    Type.String({ description: 'An English sentence that says how to fix the problem. It may change.' }),
  ),
  link: Link,
}

/** The component to which the schemas of the messages refer. */
export const NotifiedAccountSchema = Type.Object(accountFields, {
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

const listed = (description: string): TSchema =>
  Type.Array(reference('NotifiedAccount'), { maxItems: ACCOUNTS_MAX, description })

const AccountStatus = Type.Object(
  {
    ...accountFields,
    reminder: Type.Optional(
      Type.Literal(true, { description: 'Present in the daily reminder of a problem that lasts.' }),
    ),
    cause: Nullable(
      Type.Enum(['service', 'line'], { description: 'The likely cause, if it is not the account.' }),
    ),
    count: Type.Integer({ minimum: 1, description: 'Number of accounts.' }),
    accounts: listed('The worst accounts first. `count` may be greater than their number.'),
  },
  {
    description: 'The fields of the first account, and all accounts with one reason.',
  },
)

const PlatformStatusChange = Type.Object({
  before: PlatformStatus,
  after: PlatformStatus,
  reason: Nullable(Type.Literal('platform_unreachable')),
  message: Message,
  link: Link,
  cause: Nullable(Type.Enum(['service', 'line'])),
  since: Nullable(Time),
  until: Nullable(Time),
  count: Type.Integer({ minimum: 0, description: 'Number of accounts whose checks failed.' }),
})

const NotificationTest = Type.Object({ message: Message, link: Link })

const SENT_TO = 'Sent to notification channels of the format `webhook`.'

export const notificationWebhooks = standardWebhooks(SENT_TO, GONE, {
  'account.status': [
    'onAccountStatus',
    'The status of accounts changed',
    'Accounts with one reason are one message.',
    AccountStatus,
  ],
  'platform.status': [
    'onPlatformStatus',
    "LINE's API went down or came back",
    'Accounts that only wait for LINE have no messages of their own.',
    PlatformStatusChange,
  ],
  'notification.test': [
    'onNotificationTest',
    'A test by an operator',
    'Sent once and never repeated.',
    NotificationTest,
  ],
})
