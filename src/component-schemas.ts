/** The named schemas of the OpenAPI document. Route schemas refer to them by name. */

import { ClaimsSchema, VerificationSchema } from './accounts/verification.ts'
import { MemberSchema } from './audience/member.ts'
import { MemberUpdateSchema } from './audience/update.ts'
import { ErrorEnvelopeSchema } from './http/error-envelope.ts'
import { reference } from './http/schema-parts.ts'
import { Type } from './http/typebox.ts'
import { Nullable } from './http/validate.ts'

const Receipt = Type.Object({
  accepted: Type.Integer({ description: 'Number of events stored by this request.' }),
  duplicates: Type.Integer({ description: 'Number of events that were already stored.' }),
})

const TrackingReceipt = Type.Object({
  success: Type.Boolean(),
  ...Receipt.properties,
  rejected: Type.Array(
    Type.Object({
      index: Type.Integer({ description: 'Position of the event in the request, from 0.' }),
      message: Type.String({ description: 'Why the event was not stored.' }),
    }),
  ),
})

const ErasedMember = Type.Object(
  { id: Type.String(), deletedAt: Type.String({ format: 'date-time' }) },
  { description: 'A member that was erased. Only pages of a query with `updatedSince` contain these.' },
)

const Page = Type.Object({
  data: Type.Array(Type.Union([reference('Member'), reference('ErasedMember')])),
  nextCursor: Nullable(
    Type.String({ description: 'Send it as `cursor` to get the next page. It is null on the last page.' }),
  ),
})

export const componentSchemas = {
  Member: MemberSchema,
  ErasedMember,
  Page,
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
  Verification: VerificationSchema,
  Receipt,
  TrackingReceipt,
  Error: ErrorEnvelopeSchema,
}
