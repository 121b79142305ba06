/** The messages to notification channels of the format `webhook`, in the OpenAPI document. */
import { reference, standard, Time } from '../../http/schema-parts.ts'
import { Type } from '../../http/typebox.ts'
import { Nullable } from '../../http/validate.ts'
import { ACCOUNT_STATUSES, REASONS } from '../account-status.ts'
import { ACCOUNTS_MAX } from './content.ts'

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

export const notificationWebhooks = standard({
  'account.status': ['onAccountStatus', 'The status of accounts changed', AccountStatus],
  'platform.status': ['onPlatformStatus', "LINE's API went down or came back", PlatformStatus],
  'notification.test': [
    'onNotificationTest',
    'A test of a notification channel',
    Type.Object({ message: Type.String(), link: Link }),
  ],
})
