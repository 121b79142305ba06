/** Derives the status of an account from its facts, with a message and a fix for each problem. */
import type { AccountFacts } from './fleet-facts.ts'
import { age } from './format.ts'

/** From good to bad. `quiet`: no problem except that deliveries have stopped. `broken`: deliveries are lost. */
export const ACCOUNT_STATUSES = ['ok', 'quiet', 'degraded', 'broken'] as const

export type AccountStatus = (typeof ACCOUNT_STATUSES)[number]

export const REASONS = {
  no_channel_secret: 'broken',
  suspended: 'broken',
  token_refused: 'broken',
  other_account: 'broken',
  webhook_elsewhere: 'broken',
  webhook_inactive: 'broken',
  webhook_test_failed: 'broken',
  line_signature_refused: 'broken',
  foreign_destination: 'broken',
  chat_signature_refused: 'degraded',
  line_signature_doubtful: 'degraded',
  deliveries_missing: 'degraded',
  deliveries_failed: 'degraded',
  events_unapplied: 'degraded',
  endpoint_failing: 'degraded',
  endpoint_failed: 'degraded',
  token_expires: 'degraded',
  quota_used_up: 'degraded',
  not_verifiable: 'degraded',
  platform_unreachable: 'degraded',
  never_delivered: 'quiet',
  unusually_quiet: 'quiet',
  silent_for_days: 'quiet',
} as const satisfies Record<string, AccountStatus>

/** Worst first. Among equals, the reason that explains the others comes first. */
export type Reason = keyof typeof REASONS

export interface Problem {
  reason: Reason
  status: Exclude<AccountStatus, 'ok'>
  message: string
  fix: string
}

export interface AccountHealth {
  status: AccountStatus
  /** in the order of REASONS */
  problems: Problem[]
}

/** A silence with a smaller probability is unusual, so one account of a thousand is reported by mistake. */
const UNUSUAL_CHANCE = 0.001
/** An account without a rhythm is quiet after this many days. */
const SILENT_DAYS = 7
/** Counts of deliveries are kept for this many days. */
const DELIVERIES_KNOWN_DAYS = 35
/** LINE's tokens are valid for 30 days at most, and an operator renews them by hand. */
const TOKEN_EXPIRES_SOON_DAYS = 7
/** The service queries LINE every hour, so a fault of this duration is not temporary. */
const UNREACHABLE_HOURS = 6

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** Each returns the message and the fix, or false if the account does not have the problem. */
const CHECKS: {
  [reason in Reason]: (facts: AccountFacts, now: number) => [message: string, fix: string] | false
} = {
  no_channel_secret: ({ id, hasChannelSecret }) =>
    !hasChannelSecret && [
      'No channel secret is stored, so every delivery of LINE is refused (403).',
      `Run oa-audience accounts update ${id} --channel-secret -`,
    ],
  suspended: ({ isSuspended }) =>
    isSuspended && [
      'LINE has suspended the account.',
      'Ask LINE for the reason in LINE Official Account Manager.',
    ],
  token_refused: ({ id, failedChecks, firstFailure }) =>
    failedChecks.includes('access_token') && [
      sentence(firstFailure ?? 'LINE refuses the credentials of the account'),
      `If the credentials are wrong, store others with oa-audience accounts update ${id} --channel-id ID --channel-secret -`,
    ],
  other_account: ({ id, failedChecks }) =>
    failedChecks.includes('identity') && [
      'The stored credentials belong to another official account.',
      `Compare channel id, bot user id and basic id with LINE's console, then store the right ones with oa-audience accounts update ${id} --channel-id ID --channel-secret -`,
    ],
  webhook_elsewhere: ({ failedChecks, firstFailure }) =>
    failedChecks.includes('webhook_endpoint') && [
      sentence(firstFailure ?? "The webhook URL in LINE's console is not this service's"),
      'Set the webhook URL of the account in the LINE Developers Console, and add the other program as an endpoint here.',
    ],
  webhook_inactive: ({ failedChecks }) =>
    failedChecks.includes('webhook_active') && [
      'The switch "Use webhook" is off, so LINE sends no events.',
      'Turn on "Use webhook" in the LINE Developers Console.',
    ],
  webhook_test_failed: ({ id, failedChecks }) =>
    failedChecks.includes('webhook_test') && [
      'The last webhook test of LINE did not reach this service.',
      `Check that PUBLIC_URL is reachable from the internet, then run oa-audience accounts verify ${id} --test-webhook`,
    ],
  line_signature_refused: (facts, now) =>
    facts.refusedSources.includes('line') && isSilent(facts) && refusals(facts, now),
  foreign_destination: ({ id, foreignDestinationAt }, now) =>
    foreignDestinationAt !== null && [
      `Deliveries are for another bot, the last one ${ago(foreignDestinationAt, now)}.`,
      `Run oa-audience accounts verify ${id}, which compares the bot user id. For a module channel, add the other account.`,
    ],
  chat_signature_refused: ({ id, refused, lastRefusedAt, refusedSources }, now) =>
    refusedSources.includes('mbox') && [
      `Callbacks of the support chat with a wrong signature in 7 days: ${refused}, the last one ${ago(lastRefusedAt, now)}; no valid one since.`,
      `Store the secret of the chat's webhook, with oa-audience accounts update ${id} --chat-secret -`,
    ],
  line_signature_doubtful: (facts, now) =>
    facts.refusedSources.includes('line') && !isSilent(facts) && refusals(facts, now),
  deliveries_missing: ({ missing, missingDay }) =>
    missing !== null && [
      `On ${missingDay} LINE counted ${missing} follows or blocks that it did not deliver.`,
      'Turn on "Webhook redelivery" in the LINE Developers Console, and import the followers.',
    ],
  deliveries_failed: ({ failed24h }) =>
    failed24h > 0 && [
      `Deliveries refused with 503 in 24 hours: ${failed24h}.`,
      'Run oa-audience doctor; LINE delivers them again if "Webhook redelivery" is on.',
    ],
  events_unapplied: ({ id, unapplied }) =>
    unapplied > 0 && [
      `Stored events that could not be applied: ${unapplied}.`,
      `Run oa-audience events list --account ${id} to see why.`,
    ],
  endpoint_failing: ({ failingEndpointId, endpointsPending }) =>
    failingEndpointId !== null && [
      `Endpoint ${failingEndpointId} does not accept what is sent to it; deliveries waiting: ${endpointsPending}.`,
      `Fix the receiver, or run oa-audience endpoints pause ${failingEndpointId}`,
    ],
  endpoint_failed: ({ id, endpointsFailed }) =>
    endpointsFailed > 0 && [
      `Deliveries to endpoints that failed for 24 hours: ${endpointsFailed}.`,
      `oa-audience endpoints list --account ${id} shows which. When the receiver works, run oa-audience endpoints retry ID`,
    ],
  token_expires: ({ id, tokenExpiresAt }, now) =>
    tokenExpiresAt !== null &&
    Date.parse(tokenExpiresAt) < now + TOKEN_EXPIRES_SOON_DAYS * DAY_MS && [
      `The channel access token expires in ${age((Date.parse(tokenExpiresAt) - now) / 1000)}.`,
      `Store a new one with oa-audience accounts update ${id} --channel-access-token - or let the service issue its own from channel id and secret.`,
    ],
  quota_used_up: ({ quotaLimit, quotaUsed }) =>
    quotaLimit !== null &&
    (quotaUsed ?? 0) >= quotaLimit && [
      `All ${quotaLimit} messages of this month are used up, so LINE refuses further ones.`,
      'Choose a larger plan in LINE Official Account Manager, or wait for the next month.',
    ],
  not_verifiable: ({ id, canCallPlatform, hasChannelId, hasChannelSecret }) => {
    if (canCallPlatform) return false
    const missing = [...(hasChannelId ? [] : ['channel id']), ...(hasChannelSecret ? [] : ['channel secret'])]
    const options = [
      ...(hasChannelId ? [] : ['--channel-id ID']),
      ...(hasChannelSecret ? [] : ['--channel-secret -']),
    ]
    return [
      `Profiles and verification are unavailable: no access token is stored, and no ${missing.join(' and no ')} to issue one from.`,
      `Run oa-audience accounts update ${id} ${options.join(' ')}`,
    ]
  },
  platform_unreachable: ({ fault, checkedAt, verifiedAt, canCallPlatform }, now) =>
    canCallPlatform &&
    fault !== null &&
    checkedAt !== null &&
    Date.parse(verifiedAt ?? checkedAt) < now - UNREACHABLE_HOURS * HOUR_MS && [
      `LINE has not responded to a verification for ${UNREACHABLE_HOURS} hours (${fault}).`,
      'Allow outgoing HTTPS to LINE, and run oa-audience doctor.',
    ],
  never_delivered: ({ id, lastDeliveryAt, hasChannelSecret, addedAt }, now) =>
    hasChannelSecret &&
    lastDeliveryAt === null && [
      Date.parse(addedAt) < now - DELIVERIES_KNOWN_DAYS * DAY_MS
        ? `LINE has not delivered anything for ${DELIVERIES_KNOWN_DAYS} days.`
        : `LINE has not delivered anything since the account was added ${ago(addedAt, now)}.`,
      `Set the webhook URL in the LINE Developers Console, then run oa-audience accounts verify ${id} --test-webhook`,
    ],
  unusually_quiet: ({ id, lastDeliveryAt, silenceChance }, now) =>
    silenceChance !== null &&
    silenceChance < UNUSUAL_CHANCE && [
      `LINE last delivered ${ago(lastDeliveryAt, now)}, which is unusual for this account at this time of the week.`,
      `Run oa-audience accounts verify ${id} --test-webhook`,
    ],
  silent_for_days: ({ id, lastDeliveryAt, silenceChance }, now) =>
    lastDeliveryAt !== null &&
    (silenceChance ?? 1) >= UNUSUAL_CHANCE &&
    Date.parse(lastDeliveryAt) < now - SILENT_DAYS * DAY_MS && [
      `LINE last delivered ${ago(lastDeliveryAt, now)}.`,
      `Run oa-audience accounts verify ${id} --test-webhook`,
    ],
}

const sentence = (text: string): string => (text.endsWith('.') ? text : `${text}.`)

/** Anybody can send wrong signatures. Only together with silence do they mean that the secret is wrong. */
function isSilent({ lastDeliveryAt, silenceChance }: AccountFacts): boolean {
  return lastDeliveryAt === null || (silenceChance ?? 1) < UNUSUAL_CHANCE
}

function refusals({ id, refused, lastRefusedAt }: AccountFacts, now: number): [string, string] {
  return [
    `Deliveries with a wrong signature in 7 days: ${refused}, the last one ${ago(lastRefusedAt, now)}; LINE has sent no valid one since.`,
    `Store the channel secret that LINE's console shows, with oa-audience accounts update ${id} --channel-secret -`,
  ]
}

export function assessAccount(facts: AccountFacts, now: number): AccountHealth {
  const problems = (Object.keys(REASONS) as Reason[]).flatMap((reason) => {
    const found = CHECKS[reason](facts, now)
    return found === false ? [] : [{ reason, status: REASONS[reason], message: found[0], fix: found[1] }]
  })
  return { status: problems[0]?.status ?? 'ok', problems }
}

const ago = (time: string | null, now: number): string => `${age((now - Date.parse(time ?? '')) / 1000)} ago`
