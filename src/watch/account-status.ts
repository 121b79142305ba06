/** The status of an account, and the facts of its problems. */
import type { Check } from '../accounts/verification.ts'
import type { AccountId, OrganizationId } from '../ids.ts'

/** They are sorted from good to bad. `quiet`: no problem except that deliveries have stopped. `broken`: deliveries are lost. */
export const ACCOUNT_STATUSES = ['ok', 'quiet', 'degraded', 'broken'] as const

export type AccountStatus = (typeof ACCOUNT_STATUSES)[number]

export type Reason = keyof typeof REASONS

/** What the sentence about each problem states. */
export type ReasonFacts = { [R in Reason]: Exclude<ReturnType<(typeof CHECKS)[R]>, false> }

/** Nothing is announced until the date. It ends earlier if a pass stores another worst problem, or none (store-statuses.ts). */
export type Mute = { until: string; reason: string }

/** Only the worst problem of an account can be muted. */
export type Problem = {
  [R in Reason]: { reason: R; status: (typeof REASONS)[R]; facts: ReasonFacts[R]; muted?: Mute }
}[Reason]

interface AccountHealth {
  status: AccountStatus
  /** in the order of REASONS */
  problems: Problem[]
}

/** Times are ISO 8601 in UTC. */
export interface AccountFacts {
  id: AccountId
  organizationId: OrganizationId
  organizationName: string
  name: string
  basicId: string | null
  addedAt: string
  hasChannelId: boolean
  hasChannelSecret: boolean
  /** an access token is stored, or the channel id and secret with which one can be issued */
  canCallPlatform: boolean
  isSuspended: boolean
  /** the newest delivery of a week for another bot, and its bot user id */
  foreignDestinationAt: string | null
  foreignDestination: string | null
  /** null: LINE has delivered since */
  moduleDetachedAt: string | null
  /** of the proof whose delivery LINE did not send again; null: redelivery was seen since */
  redeliveryOffAt: string | null
  /** a webhook test that LINE reported as passed, and that did not arrive here */
  answeredElsewhereAt: string | null
  /** another account of the organization with the same bot user id */
  duplicateId: AccountId | null
  /** LINE's newest delivery in 35 days */
  lastDeliveryAt: string | null
  /** when the channel secret was changed; null: LINE has delivered since, or it is the first one */
  unprovenSecretAt: string | null
  /** the probability of this silence, by the last four weeks; null without a silence; up to 20 minutes old */
  silenceChance: number | null
  deliveries24h: number
  events24h: number
  failed24h: number
  /** with a wrong signature, in a week */
  refused: number
  lastRefusedAt: string | null
  /** sources whose newest delivery had a wrong signature */
  refusedSources: string[]
  unapplied: number

  verifiedAt: string | null
  verified: boolean | null
  failedChecks: Array<Check['name']>
  /** the first failed check, with LINE's message if LINE refused a call */
  firstFailure: Check | null
  /** of the last webhook test; null: it passed, LINE has delivered since, or the secret that it refused was replaced */
  testFailure: Check | null
  checkedAt: string | null
  /** why LINE did not respond */
  fault: string | null
  tokenExpiresAt: string | null
  quotaLimit: number | null
  quotaUsed: number | null

  members: number | null
  following: number | null
  blocked: number | null
  profilesDue: number | null
  countedAt: string | null
  /** more followers than a week ago */
  growth7d: number | null
  /** the newest day of a week on which LINE counted more changes than were delivered */
  missingDay: string | null
  missing: number | null

  endpointsPending: number
  endpointsFailed: number
  /** the lowest id of an active endpoint that does not accept deliveries */
  failingEndpointId: bigint | null
}

/** with the stored status */
export type FleetAccount = AccountFacts & AccountHealth

/** One account of a thousand is reported by mistake. */
const UNUSUAL_CHANCE = 0.001
/** for an account without a rhythm */
const SILENT_DAYS = 7
/** Counts of deliveries are kept for so long. */
const DELIVERIES_KNOWN_DAYS = 35
const TOKEN_EXPIRES_SOON_DAYS = 7
const QUOTA_LOW_SHARE = 0.8
/** The service queries LINE every hour, so a fault of this duration is not temporary. */
const UNREACHABLE_HOURS = 6

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

const NO_FACTS: Record<string, never> = {}

/** Each returns the facts of the problem, or false if the account does not have it. Among equals, one that explains others comes first. */
type Checks = Record<string, (facts: AccountFacts, now: number) => object | false>

const BROKEN = {
  no_channel_secret: ({ hasChannelSecret }) => !hasChannelSecret && NO_FACTS,
  suspended: ({ isSuspended }) => isSuspended && NO_FACTS,
  token_refused: (facts) => failedCheck(facts, 'access_token'),
  other_account: (facts) => failedCheck(facts, 'identity') && NO_FACTS,
  webhook_elsewhere: (facts) => failedCheck(facts, 'webhook_endpoint'),
  webhook_inactive: (facts) => failedCheck(facts, 'webhook_active') && NO_FACTS,
  webhook_test_failed: ({ testFailure }) => testFailure !== null && { check: testFailure },
  line_signature_refused: (facts) => isSilent(facts) && refusalsOf(facts, 'line'),
  foreign_destination: ({ foreignDestinationAt }) =>
    foreignDestinationAt !== null && { lastAt: foreignDestinationAt },
  module_detached: ({ moduleDetachedAt }) => moduleDetachedAt !== null && { detachedAt: moduleDetachedAt },
  answered_elsewhere: ({ answeredElsewhereAt }) =>
    answeredElsewhereAt !== null && { testedAt: answeredElsewhereAt },
} satisfies Checks

const DEGRADED = {
  chat_signature_refused: (facts) => refusalsOf(facts, 'mbox'),
  line_signature_doubtful: (facts) => !isSilent(facts) && refusalsOf(facts, 'line'),
  redelivery_off: ({ redeliveryOffAt }) => redeliveryOffAt !== null && { refusedAt: redeliveryOffAt },
  duplicate_bot: ({ duplicateId }) => duplicateId !== null && { otherId: String(duplicateId) },
  deliveries_missing: ({ missing, missingDay }) =>
    missing !== null && missingDay !== null && { count: missing, day: missingDay },
  deliveries_failed: ({ failed24h }) => failed24h > 0 && { count: failed24h },
  events_unapplied: ({ unapplied }) => unapplied > 0 && { count: unapplied },
  endpoint_failing: ({ failingEndpointId, endpointsPending }) =>
    failingEndpointId !== null && { endpointId: String(failingEndpointId), pending: endpointsPending },
  endpoint_failed: ({ endpointsFailed }) => endpointsFailed > 0 && { count: endpointsFailed },
  token_expires: ({ tokenExpiresAt }, now) =>
    tokenExpiresAt !== null &&
    Date.parse(tokenExpiresAt) < now + TOKEN_EXPIRES_SOON_DAYS * DAY_MS && {
      expiresAt: tokenExpiresAt,
      isExpired: Date.parse(tokenExpiresAt) <= now,
    },
  quota_used_up: ({ quotaLimit, quotaUsed }) =>
    quotaLimit !== null && (quotaUsed ?? 0) >= quotaLimit && { limit: quotaLimit },
  not_verifiable: ({ canCallPlatform, hasChannelId, hasChannelSecret }) =>
    !canCallPlatform && { hasChannelId, hasChannelSecret },
  platform_unreachable: ({ fault, checkedAt, verifiedAt, canCallPlatform }, now) =>
    canCallPlatform &&
    fault !== null &&
    checkedAt !== null &&
    Date.parse(verifiedAt ?? checkedAt) < now - UNREACHABLE_HOURS * HOUR_MS && {
      hours: UNREACHABLE_HOURS,
      fault,
    },
  // announce.ts announces every other problem in addition to it.
  quota_low: ({ quotaLimit: limit, quotaUsed: used }) =>
    limit !== null && used !== null && used >= limit * QUOTA_LOW_SHARE && used < limit && { used, limit },
} satisfies Checks

const QUIET = {
  never_delivered: ({ lastDeliveryAt, unprovenSecretAt, hasChannelSecret, addedAt }, now) =>
    hasChannelSecret &&
    (lastDeliveryAt === null || unprovenSecretAt !== null) && {
      // There was none for at least so many. Null: since the account was added.
      days: Date.parse(addedAt) < now - DELIVERIES_KNOWN_DAYS * DAY_MS ? DELIVERIES_KNOWN_DAYS : null,
      addedAt,
      // Null: LINE never delivered.
      secretChangedAt: lastDeliveryAt === null ? null : unprovenSecretAt,
    },
  unusually_quiet: ({ lastDeliveryAt, silenceChance }) =>
    lastDeliveryAt !== null &&
    silenceChance !== null &&
    silenceChance < UNUSUAL_CHANCE && { lastAt: lastDeliveryAt },
  silent_for_days: ({ lastDeliveryAt, silenceChance }, now) =>
    lastDeliveryAt !== null &&
    (silenceChance ?? 1) >= UNUSUAL_CHANCE &&
    Date.parse(lastDeliveryAt) < now - SILENT_DAYS * DAY_MS && { lastAt: lastDeliveryAt },
} satisfies Checks

const CHECKS = { ...BROKEN, ...DEGRADED, ...QUIET }

const allAre = <R extends string, S extends AccountStatus>(status: S, checks: Record<R, unknown>) =>
  Object.fromEntries(Object.keys(checks).map((reason) => [reason, status])) as Record<R, S>

/** Worst first. */
export const REASONS = {
  ...allAre('broken', BROKEN),
  ...allAre('degraded', DEGRADED),
  ...allAre('quiet', QUIET),
}

function failedCheck(
  { failedChecks, firstFailure }: AccountFacts,
  name: Check['name'],
): { check: Check | null } | false {
  return failedChecks.includes(name) && { check: firstFailure?.name === name ? firstFailure : null }
}

/** Whether LINE refuses the stored access token, and not the channel id and secret. */
export const isStoredToken = (check: Check | null): boolean =>
  check?.reason === 'token_refused' || check?.reason === 'malformed_token'

/** Anybody can send wrong signatures. Only together with silence do they mean that the secret is wrong. */
function isSilent({ lastDeliveryAt, unprovenSecretAt, silenceChance }: AccountFacts): boolean {
  return lastDeliveryAt === null || unprovenSecretAt !== null || (silenceChance ?? 1) < UNUSUAL_CHANCE
}

/** The refusals of a week are counted for all sources together. */
function refusalsOf(
  { refused, lastRefusedAt, refusedSources }: AccountFacts,
  source: string,
): { count: number; lastAt: string } | false {
  return (
    refusedSources.includes(source) && lastRefusedAt !== null && { count: refused, lastAt: lastRefusedAt }
  )
}

export function assessAccount(facts: AccountFacts, now: number): AccountHealth {
  const problems = (Object.keys(REASONS) as Reason[]).flatMap((reason) => {
    const found = CHECKS[reason](facts, now)
    return found === false ? [] : [{ reason, status: REASONS[reason], facts: found } as Problem]
  })
  return { status: problems[0]?.status ?? 'ok', problems }
}
