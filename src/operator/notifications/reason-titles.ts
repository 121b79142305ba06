import type { Reason } from '../accounts/account-status.ts'

/** Problems in a few words, for the first lines of messages: `Cafe Alpha is broken: suspended by LINE`. */
export const REASON_TITLES: Record<Reason, string> = {
  no_channel_secret: 'no channel secret',
  suspended: 'suspended by LINE',
  token_refused: 'LINE refuses the credentials',
  other_account: 'credentials of another account',
  webhook_elsewhere: 'the webhook URL points to another service',
  webhook_inactive: '"Use webhook" is off',
  webhook_test_failed: "LINE's webhook test failed",
  line_signature_refused: 'deliveries of LINE have wrong signatures',
  foreign_destination: 'deliveries are for another bot',
  chat_signature_refused: 'callbacks of the support chat have wrong signatures',
  line_signature_doubtful: 'some deliveries of LINE have wrong signatures',
  deliveries_missing: 'LINE did not deliver all follows and blocks',
  deliveries_failed: 'this service refused deliveries of LINE (503)',
  events_unapplied: 'events could not be applied',
  endpoint_failing: 'an endpoint does not accept deliveries',
  endpoint_failed: 'deliveries to endpoints failed permanently',
  token_expires: 'the channel access token expires',
  quota_used_up: 'no messages are left this month',
  not_verifiable: 'no access token, so no profiles and no verification',
  platform_unreachable: 'LINE does not respond',
  never_delivered: 'LINE has delivered nothing',
  unusually_quiet: 'unusually quiet',
  silent_for_days: 'no deliveries for days',
}
