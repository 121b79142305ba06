import type { FastifySchema } from 'fastify'
import {
  BODY_FAILURES,
  CLIENT_FAILURES,
  failures,
  jsonBody,
  reference,
  success,
  TAGS,
  THREE_HEADERS,
} from '../http/schema-parts.ts'

export const verifySchema: FastifySchema = {
  operationId: 'verifyAccount',
  summary: 'Verify the official account',
  description: `Asks LINE whether the account of the scope is set up correctly, and stores the outcome on the account.
The body is optional. With \`testWebhook\`, LINE also sends a test delivery to the webhook.`,
  tags: [TAGS.account],
  security: THREE_HEADERS,
  body: jsonBody(reference('Claims')),
  'x-body-optional': true,
  response: {
    ...success('Verification', 'The outcome of all checks. A failed check is also a 200.'),
    ...failures({
      ...CLIENT_FAILURES,
      ...BODY_FAILURES,
      400: 'The body is not valid JSON, or a field is invalid. `details` identifies the field.',
      404: 'The API key is not active, or its scope has no official account.',
      503: 'LINE is unavailable, slow or limits requests, or the webhook was tested too often.',
    }),
  },
}
