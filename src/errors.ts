/**
 * The closed set of error codes, each with its default message. http/error-envelope.ts maps each
 * code to a status, and docs/errors.md explains each one.
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
  signed_out: 'Sign in to the console first',
  wrong_console_token: 'This is not the CONSOLE_TOKEN of the service',
  wrong_password: 'The email address or the password is wrong',
  invalid_invitation: 'This invitation was used or replaced, or has expired. Ask an owner for a new one.',
  unknown_operator: 'No active operator has this address. Ask an owner to add you.',
  untrusted_proxy:
    'The header of CONSOLE_USER_HEADER comes from an address that TRUST_PROXY does not contain',
  forbidden: 'Your role does not allow this',
  foreign_origin: 'The request does not come from a page of the console',
  sign_in_limited: 'Too many attempts to sign in; try again later',
  unknown_item: 'Nothing has this id',
  unknown_route: 'No such route',
  unknown_member: 'No such member in this scope',
  unknown_account: 'No such official account',
  unknown_tracking_key: 'Unknown or missing tracking key (writeKey)',
  bad_request: 'The request is malformed',
  invalid_input: 'The input is invalid',
  bad_signature: 'The signature is missing or wrong',
  external_id_taken: 'Another member of this scope has this externalId',
  database_restored:
    'The database was restored from a backup, and changes that you have read are lost. Read the whole audience again without updatedSince, then continue with the time of that walk.',
  stale_version: 'The member has changed since the version named in If-Match',
  body_too_large: 'The body is larger than 1 MiB',
  unsupported_encoding: 'Compressed bodies are not accepted; send the body as it is',
  unsupported_media_type: 'Send the body as content-type: application/json',
  rate_limited: 'Too many requests from this address; try again later',
  stream_open: 'Another stream of this api key or operator is open; try again later',
  tracking_budget_exceeded: 'Too many tracking events; try again later',
  count_changed: 'The number of matching members has changed. Check it and confirm again.',
  replay_running:
    'A replay or resend of this endpoint is still running. Wait for its end or cancel it, then try again.',
  too_many_jobs: 'Too many tasks are running; try again when one of them has ended',
  account_busy: 'Too many concurrent requests for this account; try again later',
  busy: 'Too many concurrent requests; try again later',
  too_many_bodies: 'Too many bodies are being received. Send the whole body at once, or try again later.',
  unavailable: 'Not available right now; try again later',
  secret_unreadable: 'A stored secret of the account cannot be read; the operator must check SECRETS_KEYS',
  platform_unavailable: 'The messaging platform does not respond right now; try again later',
  internal: 'The request could not be completed',
} as const

export type ErrorCode = keyof typeof ERROR_MESSAGES

/** One error of the input. `path` is the field, such as `tags/3` or `limit`. */
export interface ErrorDetail {
  path: string
  message: string
}

/** An error whose message a client may read. It never contains a secret or personal data. */
export class AppError extends Error {
  override readonly name = 'AppError'
  readonly code: ErrorCode
  readonly details: ErrorDetail[] | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(
    code: ErrorCode,
    options: {
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

/** What does not exist, or what the caller does not see: both look the same. */
export class NotVisible extends AppError {
  /** of a command group with `list`, such as `account` */
  readonly noun: string
  readonly id: bigint

  constructor(noun: string, id: bigint) {
    super('unknown_item')
    this.noun = noun
    this.id = id
  }
}

export function requireVisible<T>(item: T | null | undefined, noun: string, id: bigint): T {
  if (item === null || item === undefined) throw new NotVisible(noun, id)
  return item
}

/** Ends the start or the command. Its message is printed without a stack, and says what happened, then what to do. */
export class FatalError extends Error {
  override readonly name = 'FatalError'
}

/**
 * Formats an input error as one line. Throws any other error again.
 * @param nameOf what the user calls a field
 */
export function toFatalError(error: unknown, nameOf = (path: string) => path): FatalError {
  if (error instanceof FatalError) return error
  if (!(error instanceof AppError) || error.code === 'unavailable') throw error
  if (error.message !== ERROR_MESSAGES[error.code]) return new FatalError(error.message)
  const details = error.details?.map(({ path, message }) => `${nameOf(path)} ${message}`).join('; ')
  return new FatalError(details ?? error.message)
}
