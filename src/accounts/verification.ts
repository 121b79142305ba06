import { type Static, Type } from '../http/typebox.ts'
import { Nullable, StorableText } from '../http/validate.ts'
import { BotInfoSchema, WebhookTestSchema } from '../line-api/line-responses.ts'

/** Expectations of the client, which are compared with the platform's data. */
export const ClaimsSchema = Type.Object(
  {
    testWebhook: Type.Optional(Type.Boolean()),
    proveRedelivery: Type.Optional(Type.Boolean()),
    basicId: Type.Optional(StorableText({ maxLength: 128 })),
    botUserId: Type.Optional(StorableText({ maxLength: 128 })),
  },
  { additionalProperties: false },
)

export type Claims = Static<typeof ClaimsSchema>

export const FAILURE_REASONS = [
  'no_credentials',
  'malformed_token',
  'credentials_refused',
  'token_not_issued',
  'token_refused',
  'call_refused',
  'other_bot',
  'other_basic_id',
  'no_webhook_url',
  'other_webhook_url',
  'webhook_off',
  'test_not_connected',
  'test_timed_out',
  'test_error_status',
  'test_signature_refused',
  'test_failed',
  'nothing_to_test',
  'secret_refused',
  'redelivery_off',
  'other_destination',
  'responded_late',
  'module_detached',
  'other_login_channel',
  'chat_secret_refused',
] as const

/** Programs and the console's languages read the code instead of the message. */
export type FailureReason = (typeof FAILURE_REASONS)[number]

/** What the platform is asked. */
const ASKED = ['access_token', 'identity', 'webhook_endpoint', 'webhook_active', 'webhook_test'] as const
/** What deliveries prove (evidence.ts). */
const PROVEN = [
  'channel_secret',
  'redelivery',
  'destination',
  'response_time',
  'module',
  'login_channels',
  'chat_secret',
  'tracking_key',
] as const
const CHECKS = [...ASKED, ...PROVEN]

const CheckSchema = Type.Object({
  name: Type.Unsafe<(typeof CHECKS)[number]>(Type.Union(CHECKS.map((name) => Type.Literal(name)))),
  ok: Nullable(Type.Boolean({ description: 'null: deliveries have proven nothing yet' })),
  message: Type.String({ description: 'the result of the check and, if it failed, how to fix it' }),
  reason: Type.Optional(
    Type.Unsafe<FailureReason>(
      Type.Union(
        FAILURE_REASONS.map((reason) => Type.Literal(reason)),
        { description: 'why the check failed; absent if it passed' },
      ),
    ),
  ),
  seenAt: Type.Optional(
    Nullable(
      Type.String({
        format: 'date-time',
        description: 'the time of the evidence, for what deliveries prove; null: there is none',
      }),
    ),
  ),
  status: Type.Optional(
    Type.Integer({ description: "HTTP status of LINE's refusal, or of the response to its test" }),
  ),
  platformMessage: Type.Optional(
    Nullable(Type.String({ description: "LINE's own message about its refusal" })),
  ),
})

const WebhookSchema = Type.Object({
  endpoint: Nullable(Type.String({ description: 'null: none is set' })),
  active: Type.Boolean(),
  matches: Type.Boolean({
    description: "whether the endpoint is this service's webhook URL for this account",
  }),
  test: Type.Optional(WebhookTestSchema),
})

export const VerificationSchema = Type.Object({
  verified: Type.Boolean(),
  account: Nullable(BotInfoSchema),
  accountType: Type.Union([
    Type.Literal('verified_or_premium'),
    Type.Literal('unverified'),
    Type.Literal('unknown'),
  ]),
  /** Null if the access token is not accepted or belongs to another account. */
  webhook: Nullable(WebhookSchema),
  checks: Type.Array(CheckSchema),
  checkedAt: Type.String({ format: 'date-time' }),
})

export type Check = Static<typeof CheckSchema>
export type Webhook = Static<typeof WebhookSchema>
export type Verification = Static<typeof VerificationSchema>

/** Of the OpenAPI document, with examples. */
export const verificationSchemas = {
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
          { name: 'access_token', ok: true, message: 'LINE accepts the access token' },
          {
            name: 'webhook_active',
            ok: false,
            message: 'LINE sends no webhooks: in the LINE Developers Console switch on "Use webhook"',
            reason: 'webhook_off',
          },
        ],
        checkedAt: '2026-11-21T09:00:00.000Z',
      },
    ],
  },
}
