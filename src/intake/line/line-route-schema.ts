import type { FastifySchema } from 'fastify'
import { failures, jsonBody, pathParameter, TAGS } from '../../http/schema-parts.ts'
import { Type } from '../../http/typebox.ts'
import { EXAMPLE_USER_ID, RECEIPT, SIGNED_FAILURES } from '../schema-parts.ts'
import { deliveryPaths } from './line-signature.ts'

const DELIVERY = {
  destination: 'U8e742f61d673b39c7fff3cecb7536ef0',
  events: [
    {
      type: 'follow',
      mode: 'active',
      timestamp: 1700000000000,
      webhookEventId: '01HF7YAT00AAAAAAAAAAAAAAAA',
      deliveryContext: { isRedelivery: false },
      source: { type: 'user', userId: EXAMPLE_USER_ID },
    },
  ],
}

const WEBHOOK = Type.Object(
  {
    destination: Type.Optional(Type.String({ description: 'User id of the bot.' })),
    events: Type.Array(Type.Object({}, { additionalProperties: true }), {
      description: 'Events of any type. Empty when LINE verifies the webhook URL.',
    }),
  },
  { additionalProperties: true, description: 'The body of a LINE webhook.', examples: [DELIVERY] },
)

export function lineDeliverySchema(path: string): FastifySchema {
  const [lowerCasePath] = deliveryPaths(':id')
  return {
    operationId: path === lowerCasePath ? 'receiveLineDelivery' : 'receiveLineDeliveryCapitalised',
    summary: 'Receive a webhook delivery from LINE',
    description:
      'LINE signs the raw body with the channel secret. An account without a secret accepts no delivery.',
    tags: [TAGS.intake],
    params: pathParameter('id', 'Id of the official account.'),
    headers: Type.Object({
      'x-line-signature': Type.String({ description: 'Base64 of HMAC-SHA256(channel secret, raw body).' }),
    }),
    body: jsonBody(WEBHOOK),
    response: {
      ...RECEIPT,
      ...failures({ ...SIGNED_FAILURES, 400: 'The body is not valid JSON, or it has no `events` array.' }),
    },
  }
}
