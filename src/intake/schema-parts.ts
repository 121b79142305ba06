/** Parts of the OpenAPI document that all routes for events share. */
import { BODY_FAILURES, success } from '../http/schema-parts.ts'

export const EXAMPLE_USER_ID = 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8'

export const RECEIPT = success('Receipt', 'Every event is committed to disk.')

export const INTAKE_FAILURES = {
  413: BODY_FAILURES[413],
  415: 'The body is compressed.',
  503: 'No event was stored. Send the request again.',
}

export const SIGNED_FAILURES = {
  ...INTAKE_FAILURES,
  403: 'The signature is missing or does not match.',
  404: 'There is no such official account.',
}
