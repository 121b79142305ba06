/** The requests to endpoints in the OpenAPI document. docs/api.md says how they are signed and repeated. */
import { outgoing, reference, standard } from '../http/schema-parts.ts'
import { Type } from '../http/typebox.ts'

const LineDelivery = Type.Object({
  destination: Type.String({ description: 'User id of the bot that LINE sent the events to.' }),
  events: Type.Array(Type.Object({}, { additionalProperties: true }), {
    description: 'The events as LINE sent them. Empty in a test delivery.',
  }),
})

export const endpointWebhooks = {
  'line.delivery': outgoing('onLineDelivery', 'Events from LINE', LineDelivery),
  ...standard({
    'member.created': ['onMemberCreated', 'A person became a member', reference('Member')],
    'member.updated': ['onMemberUpdated', 'A member changed', reference('Member')],
    'member.erased': ['onMemberErased', 'A member was erased', reference('ErasedMember')],
    'account.verified': ['onAccountVerified', 'The account was verified', reference('Verification')],
    'endpoint.test': ['onEndpointTest', 'A test of an endpoint', Type.Object({ endpointId: Type.String() })],
  }),
}
