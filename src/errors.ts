/**
 * The closed set of things that can go wrong, each with the sentence a caller reads.
 * Knows no HTTP: http/error-envelope.ts maps each code to a status, docs/errors.md explains each one.
 */
export const ERROR_MESSAGES = {
  missing_credentials: 'Missing credentials in headers',
  invalid_client: 'Invalid client credentials',
  caller_unknown: 'The caller is not authenticated',
  erase_without_scope: 'Step 1: the api key is not active for this client',
  erase_unknown_member: 'Step 2: no such member in this scope',
  erase_stale: 'Step 2: the member has changed since the version named in If-Match',
  erase_failed: 'Step 3: the erasure failed; try again',
  update_without_scope: 'The request could not be completed',
  no_account_in_scope: 'The api key names no official account',
  unknown_route: 'No such route',
  unknown_member: 'No such member in this scope',
  unknown_account: 'No such official account',
  unknown_tracking_key: 'Unknown or missing tracking key (writeKey)',
  bad_request: 'The request is malformed',
  invalid_input: 'The input is invalid',
  bad_signature: 'The signature is missing or wrong',
  external_id_taken: 'Another member of this scope has this externalId',
  stale_version: 'The member has changed since the version named in If-Match',
  body_too_large: 'The body is larger than 1 MiB',
  unsupported_encoding: 'Compressed bodies are not accepted; send the body as it is',
  unsupported_media_type: 'Send the body as content-type: application/json',
  rate_limited: 'Too many requests from this address; try again later',
  unavailable: 'Not available right now; try again later',
  platform_unavailable: 'The messaging platform does not answer right now; try again later',
  internal: 'The request could not be completed',
} as const

export type ErrorCode = keyof typeof ERROR_MESSAGES

/** One fault of the input: where it is (`tags/3`, `limit`) and what is wrong with it. */
export interface ErrorDetail {
  path: string
  message: string
}

/** An error that a caller may be told about. Never carries a secret or personal text. */
export class AppError extends Error {
  override readonly name = 'AppError'
  readonly code: ErrorCode
  readonly details: ErrorDetail[] | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(
    code: ErrorCode,
    options: {
      /** replaces the code's sentence where a more precise one helps */
      message?: string
      details?: ErrorDetail[]
      retryAfterSeconds?: number
      cause?: unknown
    } = {},
  ) {
    super(
      options.message ?? ERROR_MESSAGES[code],
      options.cause === undefined ? undefined : { cause: options.cause },
    )
    this.code = code
    this.details = options.details
    this.retryAfterSeconds = options.retryAfterSeconds
  }
}

/** A start, or a command, that cannot go on: its message is one clear line for a person, without a stack. */
export class FatalError extends Error {
  override readonly name = 'FatalError'
}
