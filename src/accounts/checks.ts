/** The checks of a verification, as pure functions of the platform's responses. */
import { type PlatformFault, statusAndReason } from '../line-api/call.ts'
import type { BotInfo, WebhookTest } from '../line-api/line-responses.ts'
import type { Account } from './account.ts'
import type { Check, Claims, FailureReason, Webhook } from './verification.ts'

export type Refusal = Exclude<PlatformFault, { type: 'unavailable' }>

export const ACCESS_TOKEN_ACCEPTED = passed('access_token', 'LINE accepts the access token')

/** For refusals that do not concern credentials, without status and reason. */
const CONSEQUENCES = {
  access_token: 'LINE does not describe the account',
  webhook_endpoint: 'LINE does not return the webhook URL',
  webhook_test: 'LINE does not test the webhook',
}

export function refusedCheck(name: keyof typeof CONSEQUENCES, refusal: Refusal): Check {
  const [reason, message] = explainRefusal(refusal, CONSEQUENCES[name])
  const facts = 'status' in refusal ? { status: refusal.status, platformMessage: refusal.reason } : {}
  return failed(name, reason, message, facts)
}

export function explainRefusal(
  refusal: Refusal,
  consequence: string,
): [reason: FailureReason, message: string] {
  switch (refusal.type) {
    case 'no_credentials':
      return [
        'no_credentials',
        'The account has neither an access token nor channel id and secret: store one of them',
      ]
    case 'malformed_token':
      return [
        'malformed_token',
        'The stored channel access token contains characters that are not allowed in a token: store it again',
      ]
    case 'refused_credentials':
      return [400, 401].includes(refusal.status)
        ? [
            'credentials_refused',
            `LINE refuses the channel id and secret (status ${refusal.status}): compare them with the LINE Developers Console`,
          ]
        : ['token_not_issued', `LINE issues no access token ${statusAndReason(refusal)}`]
    case 'refused':
      return refusal.status === 401
        ? [
            'token_refused',
            'LINE refuses the channel access token (status 401): issue a new one and store it',
          ]
        : ['call_refused', `${consequence} ${statusAndReason(refusal)}`]
  }
}

/** A valid token can still belong to another account. */
export function identityCheck(account: Account, claims: Claims, info: BotInfo): Check {
  const botUserIds = [account.botUserId, claims.botUserId].filter(isGiven)
  const basicIds = [account.basicId, claims.basicId].filter(isGiven)
  if (botUserIds.some((expected) => expected !== info.userId)) {
    return failed('identity', 'other_bot', 'The access token belongs to an account with another bot user id')
  }
  if (basicIds.some((expected) => !isSameBasicId(expected, info))) {
    return failed(
      'identity',
      'other_basic_id',
      'The access token belongs to an account with another basic id',
    )
  }
  return passed('identity', 'The access token belongs to this account')
}

function isGiven(value: string | null | undefined): value is string {
  return value !== null && value !== undefined && value !== ''
}

/** Basic ids are written with or without @ and in any case. A premium id identifies the same account. */
function isSameBasicId(expected: string, info: BotInfo): boolean {
  const normalize = (id: string) => id.replace(/^@/, '').toLowerCase()
  return [info.basicId, info.premiumId].filter(isGiven).some((id) => normalize(id) === normalize(expected))
}

/** @param expected a URL, or only a path if PUBLIC_URL is not set */
export function isSameAddress(endpoint: string, expected: string): boolean {
  if (!URL.canParse(endpoint)) return false
  const { origin, pathname, protocol } = new URL(endpoint)
  if (protocol !== 'https:' && protocol !== 'http:') return false
  const ours = new URL(expected, origin)
  return origin === ours.origin && pathname === ours.pathname
}

/** @param expected the URL to recommend, or only its path if PUBLIC_URL is not set */
export function endpointCheck({ endpoint, matches }: Webhook, expected: string): Check {
  if (matches) return passed('webhook_endpoint', 'The webhook URL is this service')
  const [reason, state] =
    endpoint === null
      ? (['no_webhook_url', 'No webhook URL is set'] as const)
      : (['other_webhook_url', 'The webhook URL is not this service'] as const)
  const address = expected.startsWith('/') ? `https://<the name of this service>${expected}` : expected
  return failed('webhook_endpoint', reason, `${state}: in the LINE Developers Console set it to ${address}`)
}

export function activeCheck({ active }: Webhook): Check {
  return active
    ? passed('webhook_active', 'LINE sends webhooks')
    : failed(
        'webhook_active',
        'webhook_off',
        'LINE sends no webhooks: in the LINE Developers Console switch on "Use webhook"',
      )
}

const TEST_ADVICE: Record<string, [reason: FailureReason, message: string]> = {
  COULD_NOT_CONNECT: [
    'test_not_connected',
    'LINE cannot connect to the webhook URL: check its host, port and certificate',
  ],
  REQUEST_TIMEOUT: ['test_timed_out', 'The webhook URL did not respond to LINE in time'],
  ERROR_STATUS_CODE: ['test_error_status', 'The webhook URL responded with an error'],
}
const TEST_FAILED: [reason: FailureReason, message: string] = [
  'test_failed',
  'The test delivery of LINE failed',
]

const SIGNATURE_REFUSED =
  'This service refused the signature of the test delivery (status 403): the stored channel secret differs from the channel’s'
const PATH_ADVICE = ' (status 404): the webhook URL does not end in the path of this account'

/** @param isHere whether the tested URL is this service's. A 403 of another service says nothing about the secret stored here. */
export function testCheck({ success, reason, statusCode }: WebhookTest, isHere: boolean): Check {
  if (success) return passed('webhook_test', 'A test delivery of LINE arrived and was accepted')
  const [failure, advice] = (Object.hasOwn(TEST_ADVICE, reason) && TEST_ADVICE[reason]) || TEST_FAILED
  if (statusCode === null || statusCode <= 0) return failed('webhook_test', failure, advice)
  const facts = { status: statusCode }
  if (statusCode === 403 && isHere)
    return failed('webhook_test', 'test_signature_refused', SIGNATURE_REFUSED, facts)
  const detail = statusCode === 404 ? PATH_ADVICE : ` (status ${statusCode})`
  return failed('webhook_test', failure, advice + detail, facts)
}

export const TEST_IMPOSSIBLE = failed(
  'webhook_test',
  'nothing_to_test',
  'There is no webhook URL to test: set it first',
)

function passed(name: Check['name'], message: string): Check {
  return { name, ok: true, message }
}

function failed(
  name: Check['name'],
  reason: FailureReason,
  message: string,
  facts: Pick<Check, 'status' | 'platformMessage'> = {},
): Check {
  return { name, ok: false, message, reason, ...facts }
}
