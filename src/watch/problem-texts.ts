/**
 * The English sentences about problems of accounts: what is wrong, and how to fix it. The command line and the English pages of
 * the console use them. Each other language of the console has a table of the same type.
 */
import type { Check } from '../accounts/verification.ts'
import type { Problem, Reason, ReasonFacts } from './account-status.ts'

/** How a reader sees numbers and times. */
export interface Formats {
  number: (value: number) => string
  /** `3 h ago`, `in 2 days` */
  relative: (iso: string) => string
  /** a day without a time of day, such as 2026-01-31 */
  date: (day: string) => string
}

type ProblemTexts = {
  [reason in Reason]: (facts: ReasonFacts[reason], formats: Formats) => [message: string, fix: string]
}

export function describeProblem<R extends Reason>(
  texts: ProblemTexts,
  { reason, facts }: Problem & { reason: R; facts: ReasonFacts[R] },
  formats: Formats,
): [message: string, fix: string] {
  return texts[reason](facts, formats)
}

/** The fix of a failed webhook test depends on why it failed. */
function testFix(
  check: Check | null,
  fixes: Record<'test_signature_refused' | 'test_error_status' | 'other', string>,
): string {
  const reason = check?.reason
  return reason === 'test_signature_refused' || reason === 'test_error_status' ? fixes[reason] : fixes.other
}

const TEST_FIX = 'Verify the account with a test delivery.'
const SECRET_FIX = "Store the channel secret that LINE's console shows."

export const PROBLEM_TEXTS: ProblemTexts = {
  no_channel_secret: () => [
    'No channel secret is stored, so every delivery of LINE is refused (403).',
    SECRET_FIX,
  ],
  suspended: () => [
    'LINE has suspended the account.',
    'Ask LINE for the reason in LINE Official Account Manager.',
  ],
  token_refused: ({ check }) => [
    sentence(check?.message ?? 'LINE refuses the credentials of the account'),
    'If the credentials are wrong, store others.',
  ],
  other_account: () => [
    'The stored credentials belong to another official account.',
    "Compare channel id, bot user id and basic id with LINE's console, then store the right ones.",
  ],
  webhook_elsewhere: ({ check }) => [
    sentence(check?.message ?? "The webhook URL in LINE's console is not this service's"),
    'Set the webhook URL of the account in the LINE Developers Console, and add the other program as an endpoint here.',
  ],
  webhook_inactive: () => [
    'The switch "Use webhook" is off, so LINE sends no events.',
    'Turn on "Use webhook" in the LINE Developers Console.',
  ],
  webhook_test_failed: ({ check }) => [
    sentence(check?.message ?? 'The last webhook test of LINE failed'),
    testFix(check, {
      test_signature_refused: SECRET_FIX,
      test_error_status:
        'Check which program responds at the webhook URL, then verify the account with a test delivery.',
      other:
        'Check that PUBLIC_URL is reachable from the internet, then verify the account with a test delivery.',
    }),
  ],
  line_signature_refused: refusedSignatures,
  foreign_destination: ({ lastAt }, { relative }) => [
    `Deliveries are for another bot, the last one ${relative(lastAt)}.`,
    'Verify the account, which compares the bot user id. For a module channel, add the other account.',
  ],
  chat_signature_refused: ({ count, lastAt }, { number, relative }) => [
    `Callbacks of the support chat with a wrong signature in 7 days: ${number(count)}, the last one ${relative(lastAt)}; no valid one since.`,
    "Store the secret of the chat's webhook.",
  ],
  line_signature_doubtful: refusedSignatures,
  deliveries_missing: ({ count, day }, { number, date }) => [
    `On ${date(day)} LINE counted ${number(count)} follows or blocks that it did not deliver.`,
    'Turn on "Webhook redelivery" in the LINE Developers Console, and import the followers.',
  ],
  deliveries_failed: ({ count }, { number }) => [
    `Deliveries refused with 503 in 24 hours: ${number(count)}.`,
    'Check the database of the service. LINE delivers them again if "Webhook redelivery" is on.',
  ],
  events_unapplied: ({ count }, { number }) => [
    `Stored events that could not be applied: ${number(count)}.`,
    'Read the reasons in the list of these events, then retry them.',
  ],
  endpoint_failing: ({ endpointId, pending }, { number }) => [
    `Endpoint ${endpointId} does not accept what is sent to it; deliveries waiting: ${number(pending)}.`,
    'Fix the receiver, or pause the endpoint.',
  ],
  endpoint_failed: ({ count }, { number }) => [
    `Deliveries to endpoints that failed for 24 hours: ${number(count)}.`,
    'When the receiver works, retry the failed deliveries.',
  ],
  token_expires: ({ expiresAt, isExpired }, { relative }) => [
    `The channel access token ${isExpired ? 'expired' : 'expires'} ${relative(expiresAt)}.`,
    'Store a new one, or let the service issue its own from channel id and secret.',
  ],
  quota_used_up: ({ limit }, { number }) => [
    `All ${number(limit)} messages of this month are used up, so LINE refuses further ones.`,
    'Choose a larger plan in LINE Official Account Manager, or wait for the next month.',
  ],
  not_verifiable: ({ hasChannelId, hasChannelSecret }) => {
    const missing = [...(hasChannelId ? [] : ['channel id']), ...(hasChannelSecret ? [] : ['channel secret'])]
    return [
      `Profiles and verification are unavailable: no access token is stored, and no ${missing.join(' and no ')} to issue one from.`,
      `Store the ${missing.join(' and the ')}.`,
    ]
  },
  platform_unreachable: ({ hours, fault }, { number }) => [
    `LINE has not responded to a verification for ${number(hours)} hours (${fault}).`,
    'Allow outgoing HTTPS to LINE.',
  ],
  never_delivered: ({ days, addedAt, secretChangedAt }, { number, relative }) =>
    secretChangedAt
      ? [
          `LINE has not delivered anything since the channel secret was changed ${relative(secretChangedAt)}.`,
          TEST_FIX,
        ]
      : [
          days === null
            ? `LINE has not delivered anything since the account was added ${relative(addedAt)}.`
            : `LINE has not delivered anything for ${number(days)} days.`,
          'Set the webhook URL in the LINE Developers Console, then verify the account with a test delivery.',
        ],
  unusually_quiet: ({ lastAt }, { relative }) => [
    `LINE last delivered ${relative(lastAt)}, which is unusual for this account at this time of the week.`,
    TEST_FIX,
  ],
  silent_for_days: ({ lastAt }, { relative }) => [`LINE last delivered ${relative(lastAt)}.`, TEST_FIX],
}

function refusedSignatures(
  { count, lastAt }: ReasonFacts['line_signature_refused'],
  { number, relative }: Formats,
): [string, string] {
  return [
    `Deliveries with a wrong signature in 7 days: ${number(count)}, the last one ${relative(lastAt)}; LINE has sent no valid one since.`,
    SECRET_FIX,
  ]
}

const sentence = (text: string): string => (text.endsWith('.') ? text : `${text}.`)
