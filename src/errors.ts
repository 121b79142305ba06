/** The closed set of error codes, each with its HTTP status and default message. docs/errors.md explains each one. */
export const ERRORS = {
  missing_credentials: [401, 'Missing credentials in headers'],
  invalid_client: [401, 'Invalid client credentials'],
  caller_unknown: [401, 'The caller is not authenticated'],
  erase_without_scope: [400, 'Step 1: the api key is not active for this client'],
  erase_unknown_member: [404, 'Step 2: no such member in this scope'],
  erase_stale: [412, 'Step 2: the member has changed since the version named in If-Match'],
  erase_failed: [500, 'Step 3: the erasure failed; try again'],
  update_without_scope: [500, 'The request could not be completed'],
  no_account_in_scope: [404, 'The api key names no official account'],
  signed_out: [401, 'Sign in to the console first'],
  wrong_console_token: [401, 'This is not the CONSOLE_TOKEN of the service'],
  wrong_password: [401, 'The email address or the password is wrong'],
  invalid_invitation: [
    404,
    'This invitation was used or replaced, or has expired. Ask an owner for a new one.',
  ],
  unknown_operator: [403, 'No active operator has this address. Ask an owner to add you.'],
  untrusted_proxy: [
    403,
    'The header of CONSOLE_USER_HEADER comes from an address that TRUST_PROXY does not contain',
  ],
  forbidden: [403, 'Your role does not allow this'],
  foreign_origin: [403, 'The request does not come from a page of the console'],
  sign_in_limited: [429, 'Too many attempts to sign in; try again later'],
  unknown_item: [404, 'Nothing has this id'],
  unknown_route: [404, 'No such route'],
  unknown_member: [404, 'No such member in this scope'],
  unknown_account: [404, 'No such official account'],
  unknown_tracking_key: [400, 'Unknown or missing tracking key (writeKey)'],
  bad_request: [400, 'The request is malformed'],
  invalid_input: [400, 'The input is invalid'],
  bad_signature: [403, 'The signature is missing or wrong'],
  external_id_taken: [409, 'Another member of this scope has this externalId'],
  database_restored: [
    410,
    'The database was restored from a backup, and changes that you have read are lost. Read the whole audience again without updatedSince, then continue with the time of that walk.',
  ],
  stale_version: [412, 'The member has changed since the version named in If-Match'],
  body_too_large: [413, 'The body is larger than 1 MiB'],
  unsupported_encoding: [415, 'Compressed bodies are not accepted; send the body as it is'],
  unsupported_media_type: [415, 'Send the body as content-type: application/json'],
  rate_limited: [429, 'Too many requests from this address; try again later'],
  stream_open: [429, 'Another stream of this api key or operator is open; try again later'],
  tracking_budget_exceeded: [429, 'Too many tracking events; try again later'],
  count_changed: [409, 'The number of matching members has changed. Check it and confirm again.'],
  replay_running: [
    409,
    'A replay or resend of this endpoint is still running. Wait for its end or cancel it, then try again.',
  ],
  too_many_jobs: [429, 'Too many jobs are running; try again when one of them has ended'],
  account_busy: [429, 'Too many concurrent requests for this account; try again later'],
  busy: [503, 'Too many concurrent requests; try again later'],
  too_many_bodies: [
    503,
    'Too many bodies are being received. Send the whole body at once, or try again later.',
  ],
  unavailable: [503, 'Not available right now; try again later'],
  secret_unreadable: [
    503,
    'A stored secret of the account cannot be read; the operator must check SECRETS_KEYS',
  ],
  platform_unavailable: [503, 'LINE does not respond right now; try again later'],
  internal: [500, 'The request could not be completed'],
} as const

export type ErrorCode = keyof typeof ERRORS

/** One error of the input. `path` is the field, such as `tags/3` or `limit`. */
export interface ErrorDetail {
  path: string
  message: string
}

/** An error whose message a client may read. It never contains a secret or personal data. */
export class AppError extends Error {
  override readonly name = 'AppError'
  readonly code: ErrorCode
  readonly status: number
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
      options.message ?? ERRORS[code][1],
      options.cause === undefined ? undefined : { cause: options.cause },
    )
    this.code = code
    this.status = ERRORS[code][0]
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

/** Throws `invalid_input`. @param message a sentence for the person who asked */
export function refuseRequest(message: string): never {
  throw new AppError('invalid_input', { message })
}

/** What `doctor` found about a part of the installation. */
export interface Finding {
  check: string
  severity: 'ok' | 'warning' | 'error'
  message: string
  code?: string
}

const findingOf =
  (severity: Finding['severity']) =>
  (check: string, message: string): Finding => ({ check, severity, message })

export const finding = { ok: findingOf('ok'), warning: findingOf('warning'), error: findingOf('error') }

/** Ends the start or the command. Its message is printed without a stack, and says what happened, then what to do. */
export class FatalError extends Error {
  override readonly name = 'FatalError'
}

/** Formats an input error as one line. Throws any other error again. `nameOf` returns what the user calls a field. */
export function toFatalError(error: unknown, nameOf = (path: string) => path): FatalError {
  if (error instanceof FatalError) return error
  if (!(error instanceof AppError) || error.code === 'unavailable') throw error
  if (error.message !== ERRORS[error.code][1]) return new FatalError(error.message)
  const details = error.details?.map(({ path, message }) => `${nameOf(path)} ${message}`).join('; ')
  return new FatalError(details ?? error.message)
}
