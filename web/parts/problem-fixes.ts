/** The fix of each problem: the field or the page that does it, or the button. LINE's console alone can do those without one. */
import type { Field } from '../../src/accounts/account-fields.ts'
import { isStoredToken, type Problem, type Reason, type ReasonFacts } from '../../src/watch/account-status.ts'

export type FormField = Exclude<Field, 'oaHash'>

type Fix =
  | { kind: 'edit'; field: FormField }
  | { kind: 'events' }
  | { kind: 'endpoints' }
  | { kind: 'webhook' }
  | { kind: 'verify'; testWebhook: boolean }
  | { kind: 'followers' }

const edit = (field: FormField): Fix => ({ kind: 'edit', field })
const TEST: Fix = { kind: 'verify', testWebhook: true }
const VERIFY: Fix = { kind: 'verify', testWebhook: false }

/** Some fixes depend on the facts of the problem. */
const FIXES: { [R in Reason]: Fix | null | ((facts: ReasonFacts[R]) => Fix) } = {
  no_channel_secret: edit('channelSecret'),
  suspended: null,
  token_refused: ({ check }) => edit(isStoredToken(check) ? 'channelAccessToken' : 'channelSecret'),
  other_account: edit('channelId'),
  webhook_elsewhere: { kind: 'webhook' },
  webhook_inactive: VERIFY,
  webhook_test_failed: ({ check }) =>
    check?.reason === 'test_signature_refused' ? edit('channelSecret') : TEST,
  line_signature_refused: edit('channelSecret'),
  foreign_destination: VERIFY,
  module_detached: VERIFY,
  answered_elsewhere: TEST,
  chat_signature_refused: edit('chatSecret'),
  line_signature_doubtful: edit('channelSecret'),
  redelivery_off: VERIFY,
  duplicate_bot: edit('botUserId'),
  deliveries_missing: { kind: 'followers' },
  deliveries_failed: null,
  events_unapplied: { kind: 'events' },
  endpoint_failing: { kind: 'endpoints' },
  endpoint_failed: { kind: 'endpoints' },
  token_expires: edit('channelAccessToken'),
  quota_used_up: null,
  not_verifiable: ({ hasChannelId }) => edit(hasChannelId ? 'channelSecret' : 'channelId'),
  platform_unreachable: VERIFY,
  quota_low: null,
  never_delivered: ({ secretChangedAt }) => (secretChangedAt ? TEST : { kind: 'webhook' }),
  unusually_quiet: TEST,
  silent_for_days: TEST,
}

/** After an upgrade, the service may send a reason that an open page does not have yet. */
export function fixOf({ reason, facts }: Problem): Fix | null {
  if (!Object.hasOwn(FIXES, reason)) return null
  const fix = FIXES[reason] as Fix | null | ((given: typeof facts) => Fix)
  return typeof fix === 'function' ? fix(facts) : fix
}

/** The page on which a problem is fixed. Buttons are on the page of the account. */
export function fixPath(problem: Problem, id: string): string {
  const fix = fixOf(problem)
  if (fix?.kind === 'edit') return `/accounts/${id}/edit?field=${fix.field}`
  if (fix?.kind === 'events') return `/events?account=${id}&status=failed`
  if (fix?.kind === 'endpoints') return `/endpoints?account=${id}`
  return `/accounts/${id}`
}
