/**
 * The outgoing messages to endpoints, as the `webhooks` of the OpenAPI document, and what they have in common with notifications.
 */
import { jsonBody, reference, TAGS } from '../http/schema-parts.ts'
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
function outgoing({ headers, schema, ...operation }: Outgoing) {
  const parameters = Object.entries(headers).map(([name, description]) => ({
    in: 'header',
    name,
    required: true,
    description,
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
const STANDARD_WEBHOOK_HEADERS = {
  'webhook-id': 'Id of the message. Deduplicate by it.',
  'webhook-timestamp':
    'Time of the attempt in Unix seconds. Reject a message that is more than 5 minutes old.',
  'webhook-signature':
    '`v1,` and base64 of HMAC-SHA256(secret, "{webhook-id}.{webhook-timestamp}.{raw body}"). While a secret is rotated, two signatures ' +
    'are separated by a space.',
  'user-agent': 'Always `oa-audience`.',
}

const RETRY_AFTER_OF_RECEIVER = {
  'Retry-After': {
    description:
      'Seconds or a date. A value that is longer than the backoff delays the next attempt, by up to 2 hours.',
    schema: { type: 'string' },
  },
}

/** What each response of a receiver means. */
const RETRIED_RESPONSES = {
  '2XX': { description: 'The message is accepted. The body of the response is ignored.' },
  429: { description: 'The message is sent again later.', headers: RETRY_AFTER_OF_RECEIVER },
  503: { description: 'The message is sent again later.', headers: RETRY_AFTER_OF_RECEIVER },
  default: {
    description:
      'Any other status, a redirect, or no response within 10 s: the message is sent again after 5 s, 10 s, 20 s and so on, up to 2 hours. ' +
      'After 24 hours it has failed permanently.',
  },
}

type StandardMessage = [operationId: string, summary: string, description: string, data: object]

/**
 * Messages in the format of Standard Webhooks, by type.
 * @param gone what happens after a response with 410
 */
export const standardWebhooks = (
  sentTo: string,
  gone: string,
  messages: Record<string, StandardMessage>,
): Record<string, ReturnType<typeof outgoing>> =>
  Object.fromEntries(
    Object.entries(messages).map(([type, [operationId, summary, description, data]]) => {
      const schema = Type.Object({
        type: Type.Literal(type),
        timestamp: Type.String({ format: 'date-time' }),
        data: Type.Unsafe(data as TSchema),
      })
      const responses = { ...RETRIED_RESPONSES, 410: { description: gone } }
      const message = { operationId, summary, description: `${sentTo} ${description}`, schema, responses }
      return [type, outgoing({ ...message, headers: STANDARD_WEBHOOK_HEADERS })]
    }),
  )

const GONE =
  'The receiver is gone. The endpoint is paused, and keeps its backlog until an operator resumes it.'

const LineDelivery = Type.Object(
  {
    destination: Type.String({ description: 'User id of the bot that LINE sent the events to.' }),
    events: Type.Array(
      Type.Object(
        {
          type: Type.Optional(Type.String()),
          mode: Type.Optional(
            Type.String({
              description: '`standby` at every endpoint that may not reply to the event, and in replays.',
            }),
          ),
          replyToken: Type.Optional(
            Type.String({
              description:
                'Present only at the first endpoint by priority that receives the event and has `replies`.',
            }),
          ),
          deliveryContext: Type.Optional(
            Type.Object(
              {
                isRedelivery: Type.Optional(
                  Type.Boolean({ description: 'True in every retry and in a replay.' }),
                ),
              },
              { additionalProperties: true },
            ),
          ),
        },
        { additionalProperties: true },
      ),
      { description: 'The events as LINE sent them, with all of their fields. Empty in a test delivery.' },
    ),
  },
  {
    examples: [
      {
        destination: 'U8e742f61d673b39c7fff3cecb7536ef0',
        events: [
          {
            type: 'message',
            mode: 'standby',
            timestamp: 1700000000000,
            webhookEventId: '01HF7YAT00AAAAAAAAAAAAAAAA',
            deliveryContext: { isRedelivery: false },
            source: { type: 'user', userId: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8' },
            message: { type: 'text', id: '1', text: 'Hello' },
          },
        ],
      },
    ],
  },
)

const lineDelivery = outgoing({
  operationId: 'onLineDelivery',
  summary: 'Events from LINE',
  description: `Sent to endpoints of the format \`line\`: one request for each delivery from LINE, with the events that are new. The tools
that receive LINE's own webhooks work unchanged. Deduplicate by \`webhookEventId\`.`,
  headers: {
    'x-line-signature': 'Base64 of HMAC-SHA256(channel secret of the account, raw body).',
    'user-agent': 'Always `LineBotWebhook/2.0`, as at LINE.',
  },
  schema: LineDelivery,
  responses: { ...RETRIED_RESPONSES, 410: { description: GONE } },
})

const COALESCED =
  'Changes are coalesced: the message has the state of the member at the time of sending, and `webhook-id` is the same in every attempt ' +
  'unless the member changed in between.'

/** By type of the message. */
export const endpointWebhooks = {
  'line.delivery': lineDelivery,
  ...standardWebhooks('Sent to endpoints of the format `members`.', GONE, {
    'member.created': ['onMemberCreated', 'A person became a member', COALESCED, reference('Member')],
    'member.updated': [
      'onMemberUpdated',
      'A member changed',
      `${COALESCED} A resend by an operator has this type, too.`,
      reference('Member'),
    ],
    'member.erased': [
      'onMemberErased',
      'A member was erased',
      'Delete what you stored about this id.',
      reference('ErasedMember'),
    ],
    'account.verified': [
      'onAccountVerified',
      'The official account was verified',
      'Contains the outcome of a verification, also if checks failed.',
      reference('Verification'),
    ],
    'endpoint.test': [
      'onEndpointTest',
      'A test by an operator',
      'Sent once and never repeated. Its `webhook-id` begins with `msg_test_`.',
      Type.Object({ endpointId: Type.String() }, { examples: [{ endpointId: '7' }] }),
    ],
  }),
}
