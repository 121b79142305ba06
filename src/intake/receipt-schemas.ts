/** The schemas of responses to senders in the OpenAPI document. */
import { Type } from '../http/typebox.ts'

export const Receipt = Type.Object(
  {
    accepted: Type.Integer({ description: 'Number of events stored by this request.' }),
    duplicates: Type.Integer({ description: 'Number of events that were already stored.' }),
  },
  { examples: [{ accepted: 1, duplicates: 0 }] },
)

export const TrackingReceipt = Type.Object(
  {
    success: Type.Boolean(),
    ...Receipt.properties,
    rejected: Type.Array(
      Type.Object({
        index: Type.Integer({ description: 'Position of the event in the request, from 0.' }),
        message: Type.String({ description: 'Why the event was not stored.' }),
      }),
    ),
  },
  { examples: [{ success: true, accepted: 1, duplicates: 0, rejected: [] }] },
)
