/** Whether an official account is set up so that the platform and this service understand each other. */
import Type, { type Static } from 'typebox'
import { AppError } from '../errors.ts'
import { Nullable, StorableText } from '../http/validate.ts'
import type { PlatformFault, PlatformResult } from '../line-api/call.ts'
import {
  type BotInfo,
  BotInfoSchema,
  type LineApi,
  type WebhookEndpoint,
  type WebhookTest,
  WebhookTestSchema,
} from '../line-api/client.ts'
import type { Queryable } from '../postgres/statement.ts'
import type { Account } from './account.ts'
import { takeWebhookTest } from './webhook-tests.ts'

/** All calls together; the answer must be out within 10 s. */
const ASKING_TIMEOUT_MS = 8_000

/** What the caller believes about the account; compared with what the platform says. */
export const ClaimsSchema = Type.Object(
  {
    testWebhook: Type.Optional(Type.Boolean()),
    basicId: Type.Optional(StorableText({ maxLength: 128 })),
    botUserId: Type.Optional(StorableText({ maxLength: 128 })),
  },
  { additionalProperties: false },
)

export type Claims = Static<typeof ClaimsSchema>

const CheckSchema = Type.Object({
  name: Type.Union([
    Type.Literal('access_token'),
    Type.Literal('identity'),
    Type.Literal('webhook_endpoint'),
    Type.Literal('webhook_active'),
    Type.Literal('webhook_test'),
  ]),
  ok: Type.Boolean(),
  message: Type.String({ description: 'what is wrong, and what to do about it' }),
})

const WebhookSchema = Type.Object({
  endpoint: Nullable(Type.String({ description: 'null: none is set' })),
  active: Type.Boolean(),
  matches: Type.Boolean({
    description: "whether deliveries to that address reach this service, as this account's",
  }),
  test: Type.Optional(WebhookTestSchema),
})

export const VerificationSchema = Type.Object({
  verified: Type.Boolean(),
  account: Nullable(BotInfoSchema),
  accountType: Type.Union([
    Type.Literal('verified_or_premium'),
    Type.Literal('unverified'),
    Type.Literal('unknown'),
  ]),
  /** null where the platform would not have spoken of this account */
  webhook: Nullable(WebhookSchema),
  checks: Type.Array(CheckSchema),
  checkedAt: Type.String({ format: 'date-time' }),
})

type Check = Static<typeof CheckSchema>
type Webhook = Static<typeof WebhookSchema>
export type Verification = Static<typeof VerificationSchema>

export interface Verifier {
  database: Queryable
  lineApi: LineApi
  /** this service as the platforms see it, without a trailing slash */
  publicUrl: string | null
  /** the paths of an account's deliveries on this service, the one to recommend first */
  webhookPaths: (accountId: string) => string[]
  now: () => number
}

type Outcome = Omit<Verification, 'verified' | 'checkedAt'>

/**
 * Asks the platform and stores the outcome. What the platform refuses is an outcome; a platform that is away,
 * slow or limiting is `platform_unavailable`, and nothing is stored.
 */
export async function verifyAccount(
  verifier: Verifier,
  account: Account,
  claims: Claims,
): Promise<Verification> {
  const { account: info, accountType, webhook, checks } = await askPlatform(verifier, account, claims)
  const verification: Verification = {
    verified: checks.every(({ ok }) => ok),
    account: info,
    accountType,
    webhook,
    checks,
    checkedAt: new Date(verifier.now()).toISOString(),
  }
  await verifier.database.query(
    'update official_account set verification = $2, verified_at = $3 where id = $1',
    [account.id, JSON.stringify(verification), verification.checkedAt],
  )
  return verification
}

async function askPlatform(verifier: Verifier, account: Account, claims: Claims): Promise<Outcome> {
  const { lineApi } = verifier
  const signal = AbortSignal.timeout(ASKING_TIMEOUT_MS)
  lineApi.forgetToken(account)
  const info = outcomeOf(await lineApi.botInfo(account, signal))
  if (!info.ok) {
    const checks = [failed('access_token', tokenAdvice(info.fault))]
    return { account: null, accountType: 'unknown', webhook: null, checks }
  }
  const identity = identityCheck(account, claims, info.value)
  const checks = [passed('access_token', 'The platform accepts the access token'), identity]
  // Everything else would be about another account.
  if (!identity.ok) return { account: info.value, accountType: 'unknown', webhook: null, checks }
  const [followers, endpoint] = await Promise.all([
    lineApi.followers(account, 1, undefined, signal).then(outcomeOf),
    lineApi.webhookEndpoint(account, signal).then(outcomeOf),
  ])
  const webhook = await askWebhook(verifier, account, claims, endpoint, signal)
  return {
    account: info.value,
    accountType: accountTypeOf(followers),
    webhook: webhook.webhook,
    checks: [...checks, ...webhook.checks],
  }
}

async function askWebhook(
  verifier: Verifier,
  account: Account,
  { testWebhook }: Claims,
  found: Answer<WebhookEndpoint>,
  signal: AbortSignal,
): Promise<{ webhook: Webhook | null; checks: Check[] }> {
  const wanted = verifier.webhookPaths(String(account.id)).map((path) => (verifier.publicUrl ?? '') + path)
  if (!found.ok && statusOf(found.fault) !== 404) {
    const message = `The platform does not show the webhook's address (status ${statusOf(found.fault)})`
    return { webhook: null, checks: [failed('webhook_endpoint', message)] }
  }
  const endpoint = found.ok ? found.value.endpoint : null
  const webhook: Webhook = {
    endpoint,
    active: found.ok && found.value.active,
    matches: endpoint !== null && wanted.some((address) => isSameAddress(endpoint, address)),
  }
  const checks = [endpointCheck(webhook, wanted[0] ?? ''), activeCheck(webhook)]
  if (testWebhook !== true) return { webhook, checks }
  if (endpoint === null) {
    return {
      webhook,
      checks: [...checks, failed('webhook_test', 'There is no address to test: set it first')],
    }
  }
  await takeWebhookTest(verifier.database, account.id)
  const test = outcomeOf(await verifier.lineApi.testWebhook(account, signal))
  if (!test.ok) {
    const message = `The platform does not test the webhook (status ${statusOf(test.fault)})`
    return { webhook, checks: [...checks, failed('webhook_test', message)] }
  }
  return { webhook: { ...webhook, test: test.value }, checks: [...checks, testCheck(test.value)] }
}

type Answer<T> =
  | { ok: true; value: T }
  | { ok: false; fault: Exclude<PlatformFault, { type: 'unavailable' }> }

/** A platform that cannot say anything now is no outcome of a verification. */
function outcomeOf<T>(result: PlatformResult<T>): Answer<T> {
  if (result.ok) return result
  if (result.fault.type === 'unavailable') {
    throw new AppError('platform_unavailable', { retryAfterSeconds: result.fault.retryAfterSeconds })
  }
  return { ok: false, fault: result.fault }
}

function statusOf(fault: PlatformFault): number | null {
  return 'status' in fault ? fault.status : null
}

function tokenAdvice(fault: Exclude<PlatformFault, { type: 'unavailable' }>): string {
  switch (fault.type) {
    case 'no_credentials':
      return 'The account has neither an access token nor channel id and secret: store one of them'
    case 'malformed_token':
      return 'The stored channel access token has characters that no token has: store it again'
    case 'refused_credentials':
      return `The platform refuses the channel id and secret (status ${fault.status}): compare them with the LINE Developers Console`
    case 'refused':
      return `The platform refuses the channel access token (status ${fault.status}): issue a new one and store it`
  }
}

/** The token may be a good one and still belong to another account. */
function identityCheck(account: Account, claims: Claims, info: BotInfo): Check {
  const botUserIds = [account.botUserId, claims.botUserId].filter(isGiven)
  const basicIds = [account.basicId, claims.basicId].filter(isGiven)
  if (botUserIds.some((expected) => expected !== info.userId)) {
    return failed('identity', 'The access token belongs to an account with another bot user id')
  }
  if (basicIds.some((expected) => !isSameBasicId(expected, info))) {
    return failed('identity', 'The access token belongs to an account with another basic id')
  }
  return passed('identity', 'The access token belongs to this account')
}

function isGiven(value: string | null | undefined): value is string {
  return value !== null && value !== undefined && value !== ''
}

/** Written with or without @, in any case; a premium id names the same account. */
function isSameBasicId(expected: string, info: BotInfo): boolean {
  const normal = (id: string) => id.replace(/^@/, '').toLowerCase()
  return [info.basicId, info.premiumId].filter(isGiven).some((id) => normal(id) === normal(expected))
}

/** Only verified and premium accounts may list their followers: the API has no other word on it. */
function accountTypeOf(followers: Answer<unknown>): Verification['accountType'] {
  if (followers.ok) return 'verified_or_premium'
  return statusOf(followers.fault) === 403 ? 'unverified' : 'unknown'
}

/** Without PUBLIC_URL nobody here knows under which name the service is reached: the path alone is compared. */
function isSameAddress(endpoint: string, wanted: string): boolean {
  if (!URL.canParse(endpoint)) return false
  const { origin, pathname, protocol } = new URL(endpoint)
  if (protocol !== 'https:' && protocol !== 'http:') return false
  const ours = new URL(wanted, origin)
  return origin === ours.origin && pathname === ours.pathname
}

function endpointCheck({ endpoint, matches }: Webhook, wanted: string): Check {
  if (matches) return passed('webhook_endpoint', "The webhook's address is this service")
  const state = endpoint === null ? 'No webhook address is set' : "The webhook's address is another"
  const address = wanted.startsWith('/') ? `https://<the name of this service>${wanted}` : wanted
  return failed('webhook_endpoint', `${state}: in the LINE Developers Console set it to ${address}`)
}

function activeCheck({ active }: Webhook): Check {
  return active
    ? passed('webhook_active', 'The platform sends webhooks')
    : failed(
        'webhook_active',
        'The platform sends no webhooks: in the LINE Developers Console switch on "Use webhook"',
      )
}

const TEST_ADVICE = new Map([
  ['COULD_NOT_CONNECT', 'The platform cannot connect to the address: look at its name, port and certificate'],
  ['REQUEST_TIMEOUT', 'The address did not answer the platform in time'],
  ['ERROR_STATUS_CODE', 'The address answered with an error'],
])

const STATUS_ADVICE: Record<number, string> = {
  403: ' (status 403): the stored channel secret is not the channel’s',
  404: ' (status 404): the address does not end in the path of this account',
}

function testCheck({ success, reason, statusCode }: WebhookTest): Check {
  if (success) return passed('webhook_test', 'A test delivery of the platform arrived and was accepted')
  const advice = TEST_ADVICE.get(reason) ?? 'The test delivery of the platform failed'
  const status = statusCode === null || statusCode <= 0 ? '' : ` (status ${statusCode})`
  return failed('webhook_test', advice + (STATUS_ADVICE[statusCode ?? 0] ?? status))
}

function passed(name: Check['name'], message: string): Check {
  return { name, ok: true, message }
}

function failed(name: Check['name'], message: string): Check {
  return { name, ok: false, message }
}
