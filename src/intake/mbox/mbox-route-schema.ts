import type { FastifySchema } from 'fastify'
import { failures, jsonBody, pathParameter, TAGS } from '../../http/schema-parts.ts'
import { Type } from '../../http/typebox.ts'
import { EXAMPLE_USER_ID, RECEIPT, SIGNED_FAILURES } from '../schema-parts.ts'

export const chatCallbackSchema: FastifySchema = {
  operationId: 'receiveChatCallback',
  summary: 'Receive a webhook from the support chat',
  description: `Accepts the webhook of Chatwoot, as one object or as an array. An account with a chat secret requires the signature
headers. The timestamp may differ from the time of the service by 5 minutes.`,
  tags: [TAGS.intake],
  params: pathParameter('oaHash', 'Secret name of the official account.'),
  headers: Type.Object({
    'x-chatwoot-signature': Type.Optional(
      Type.String({ description: '`sha256=` and hex HMAC-SHA256(chat secret, "{timestamp}.{raw body}").' }),
    ),
    'x-chatwoot-timestamp': Type.Optional(Type.String({ description: 'Unix time in seconds.' })),
    'x-chatwoot-delivery': Type.Optional(
      Type.String({
        description: 'Id that identifies a redelivery. If the callback is signed, its body does.',
      }),
    ),
  }),
  body: jsonBody({
    description: 'One webhook, or an array of webhooks.',
    examples: [
      {
        event: 'conversation_status_changed',
        id: 31,
        status: 'resolved',
        channel: 'Channel::Line',
        contact_inbox: { source_id: EXAMPLE_USER_ID },
        updated_at: 1700000060.5,
      },
    ],
  }),
  response: {
    ...RECEIPT,
    ...failures({
      ...SIGNED_FAILURES,
      400: 'The body is not valid JSON, or not a webhook of the support chat.',
    }),
  },
}

export function callbackPath(oaHash: string): string {
  return `/api/mbox/callback/${oaHash}`
}
