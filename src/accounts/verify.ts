/** Verifies with the platform that an official account is set up correctly, and stores the outcome. */
import type { FastifyInstance, FastifySchema, onRequestAsyncHookHandler } from 'fastify'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
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
import { checker } from '../http/validate.ts'
import type { PlatformResult } from '../line-api/call.ts'
import type { LineApi } from '../line-api/client.ts'
import type { WebhookEndpoint } from '../line-api/line-responses.ts'
import { accountVerified } from '../observability/facts.ts'
import type { Database } from '../postgres/database.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { type Account, armRedeliveryProof, findAccount } from './account.ts'
import {
  ACCESS_TOKEN_ACCEPTED,
  activeCheck,
  endpointCheck,
  identityCheck,
  isSameAddress,
  type Refusal,
  refusedCheck,
  TEST_IMPOSSIBLE,
  testCheck,
} from './checks.ts'
import { readEvidence } from './evidence.ts'
import { scopeOf } from './scope.ts'
import { type Check, type Claims, ClaimsSchema, type Verification, type Webhook } from './verification.ts'

/** Of all calls together. The response is due within 10 s. */
const VERIFICATION_TIMEOUT_MS = 8_000

export interface Verifier {
  database: Queryable
  lineApi: LineApi
  publicUrl: string | null
  /** of an account, the recommended one first */
  webhookPaths: (accountId: string) => string[]
  /** stores what this process has counted of deliveries; absent in a process that receives none */
  writeCounts?: () => Promise<void>
  now: () => number
}

type ChecksOutcome = Omit<Verification, 'verified' | 'checkedAt'>

/**
 * Stores the outcome and queues it for endpoints. Unsent verifications share one delivery, whose change number grows with each.
 *
 * $1 id bigint, $2 verification jsonb, $3 verified_at timestamptz, $4 boolean: endpoints also receive an unchanged outcome
 */
const storeVerification = statement('store-verification')`
    with before as (
      select verification->'verified' as verified from official_account where id = $1
    ), stored as (
      -- A periodic verification keeps the last webhook test of the same URL.
      update official_account
         set verification = case
               when not $4 and verification->'webhook' ? 'test'
                and verification->'webhook'->'endpoint' = $2::jsonb->'webhook'->'endpoint'
               then jsonb_set($2, '{webhook,test}', verification->'webhook'->'test')
               else $2 end,
             verified_at = $3,
             -- A verification without a test says nothing about the test that failed before.
             webhook_test_failure = case
               when $2::jsonb->'webhook' ? 'test'
               then jsonb_path_query_first($2, '$.checks[*] ? (@.name == "webhook_test" && @.ok == false)')
               else webhook_test_failure end,
             webhook_tested_at = case when $2::jsonb->'webhook' ? 'test' then $3 else webhook_tested_at end
       where id = $1
      returning id
    )
    insert into endpoint_delivery as d (channel_oa_id, endpoint_id, type, change)
    select p.channel_oa_id, p.id, 'account.verified', next_change()
      from stored join endpoint p on p.channel_oa_id = stored.id cross join before
     where ($4 or before.verified is distinct from $2::jsonb->'verified')
       and p.format = 'members' and receives_kind(p.events, 'account.verified')
     order by p.id
        on conflict (channel_oa_id, endpoint_id) where type = 'account.verified' do update
           set change = excluded.change, failed_at = null,
               due_at = case when d.failed_at is null then d.due_at else now() end`

/**
 * Throws `platform_unavailable` and stores nothing if the platform is unreachable, slow or rate limiting.
 * @param isRequested false: a periodic verification, of which endpoints receive only a changed outcome
 */
export async function verifyAccount(
  verifier: Verifier,
  account: Account,
  claims: Claims,
  isRequested = true,
): Promise<Verification> {
  const verification = await checkAccount(verifier, account, claims)
  await storeOutcome(verifier.database, account, verification, isRequested)
  return verification
}

/** Takes seconds, and stores nothing. Throws `platform_unavailable`. */
export async function checkAccount(
  verifier: Verifier,
  account: Account,
  claims: Claims,
): Promise<Verification> {
  const outcome = await callPlatform(verifier, account, claims).catch((error) => {
    if (error instanceof AppError && error.code === 'platform_unavailable') {
      accountVerified.publish({ outcome: 'unavailable' })
    }
    throw error
  })
  if (claims.proveRedelivery === true) await armRedeliveryProof(verifier.database, account.id)
  await verifier.writeCounts?.()
  const evidence = await readEvidence(verifier.database, account.id)
  return {
    // Deliveries say what happened, and the platform what is set up now. Clients decide by the latter.
    verified: outcome.checks.every(({ ok }) => ok),
    ...outcome,
    checks: [...outcome.checks, ...evidence],
    checkedAt: new Date(verifier.now()).toISOString(),
  }
}

export async function storeOutcome(
  database: Queryable,
  { id }: Pick<Account, 'id'>,
  verification: Verification,
  isRequested: boolean,
): Promise<void> {
  const { verified, checkedAt } = verification
  await database.query(storeVerification, [id, JSON.stringify(verification), checkedAt, isRequested])
  accountVerified.publish({ outcome: verified ? 'verified' : 'refused' })
}

async function callPlatform(verifier: Verifier, account: Account, claims: Claims): Promise<ChecksOutcome> {
  const { lineApi } = verifier
  const signal = AbortSignal.timeout(VERIFICATION_TIMEOUT_MS)
  lineApi.forgetToken(account)
  const info = requireAvailable(await lineApi.botInfo(account, signal))
  const nothing = { account: null, accountType: 'unknown', webhook: null } as const
  if (!info.ok) return { ...nothing, checks: [refusedCheck('access_token', info.fault)] }
  const identity = identityCheck(account, claims, info.value)
  const checks = [ACCESS_TOKEN_ACCEPTED, identity]
  // All other responses would describe another account.
  if (!identity.ok) return { ...nothing, account: info.value, checks }
  const [followers, endpoint] = await Promise.all([
    lineApi.followers(account, 1, undefined, signal).then(requireAvailable),
    lineApi.webhookEndpoint(account, signal).then(requireAvailable),
  ])
  const found = await checkWebhook(verifier, account, claims, endpoint, signal)
  const accountType = accountTypeOf(followers)
  return { account: info.value, accountType, ...found, checks: [...checks, ...found.checks] }
}

async function checkWebhook(
  verifier: Verifier,
  account: Account,
  { testWebhook }: Claims,
  found: CallOutcome<WebhookEndpoint>,
  signal: AbortSignal,
): Promise<{ webhook: Webhook | null; checks: Check[] }> {
  if (!found.ok && statusOf(found.fault) !== 404) {
    return { webhook: null, checks: [refusedCheck('webhook_endpoint', found.fault)] }
  }
  const expected = verifier.webhookPaths(String(account.id)).map((path) => (verifier.publicUrl ?? '') + path)
  const endpoint = found.ok ? found.value.endpoint : null
  const webhook: Webhook = {
    endpoint,
    active: found.ok && found.value.active,
    matches: endpoint !== null && expected.some((address) => isSameAddress(endpoint, address)),
  }
  const checks = [endpointCheck(webhook, expected[0] ?? ''), activeCheck(webhook)]
  if (testWebhook !== true) return { webhook, checks }
  if (endpoint === null) return { webhook, checks: [...checks, TEST_IMPOSSIBLE] }
  const test = requireAvailable(await verifier.lineApi.testWebhook(account, endpoint, signal))
  if (!test.ok) return { webhook, checks: [...checks, refusedCheck('webhook_test', test.fault)] }
  const tested = testCheck(test.value, webhook.matches)
  return { webhook: { ...webhook, test: test.value }, checks: [...checks, tested] }
}

type CallOutcome<T> = { ok: true; value: T } | { ok: false; fault: Refusal }

function requireAvailable<T>(result: PlatformResult<T>): CallOutcome<T> {
  if (result.ok) return result
  if (result.fault.type === 'unavailable') {
    throw new AppError('platform_unavailable', { retryAfterSeconds: result.fault.retryAfterSeconds })
  }
  return { ok: false, fault: result.fault }
}

function statusOf(refusal: Refusal): number | null {
  return 'status' in refusal ? refusal.status : null
}

/** The API does not return the type, but only verified and premium accounts may list their followers. */
function accountTypeOf(followers: CallOutcome<unknown>): Verification['accountType'] {
  if (followers.ok) return 'verified_or_premium'
  return statusOf(followers.fault) === 403 ? 'unverified' : 'unknown'
}

const verifySchema: FastifySchema = {
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

interface VerifyParts extends Verifier {
  database: Database
  /** `line`, in the path */
  channelName: string
}

const checkClaims = checker(ClaimsSchema)

export function verifyRoute(
  app: FastifyInstance,
  parts: VerifyParts,
  guard: onRequestAsyncHookHandler,
): void {
  const { channelName, ...verifier } = parts
  const { database } = parts
  app.post(`/api/${channelName}-oa/verify`, { schema: verifySchema, onRequest: guard }, async (request) => {
    const scope = scopeOf(request)
    if (scope === null) throw new AppError('no_account_in_scope')
    const account = await findAccount(database.accounts, scope.accountId)
    if (account?.organizationId !== scope.organizationId) throw new AppError('no_account_in_scope')
    const body = bodyBytes(request)
    const claims = body.length === 0 ? {} : checkClaims(parseUtf8Json(body))
    return verifyAccount({ ...verifier, database: database.forTenant(scope) }, account, claims)
  })
}
