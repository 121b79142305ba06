/** The fix of each problem: the form or the page that does it, or the button. LINE's console alone can do those without one. */
import type { Reason } from '../../src/operator/accounts/account-status.ts'
import { Link } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook, VerifyAccount } from './account-actions.tsx'
import type { FormField } from './account-fields.tsx'

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

const FIXES: Record<Reason, Fix | null> = {
  no_channel_secret: edit('channelSecret'),
  suspended: null,
  token_refused: edit('channelSecret'),
  other_account: edit('channelId'),
  webhook_elsewhere: { kind: 'webhook' },
  webhook_inactive: VERIFY,
  webhook_test_failed: TEST,
  line_signature_refused: edit('channelSecret'),
  foreign_destination: VERIFY,
  chat_signature_refused: edit('chatSecret'),
  line_signature_doubtful: edit('channelSecret'),
  deliveries_missing: { kind: 'followers' },
  deliveries_failed: null,
  events_unapplied: { kind: 'events' },
  endpoint_failing: { kind: 'endpoints' },
  endpoint_failed: { kind: 'endpoints' },
  token_expires: edit('channelAccessToken'),
  quota_used_up: null,
  not_verifiable: edit('channelId'),
  platform_unreachable: VERIFY,
  never_delivered: { kind: 'webhook' },
  unusually_quiet: TEST,
  silent_for_days: TEST,
}

/** After an upgrade, the service may send a reason that an open page does not have yet. */
const fixOf = (reason: string): Fix | null => (Object.hasOwn(FIXES, reason) ? FIXES[reason as Reason] : null)

/** The page on which a problem is fixed. Buttons are on the page of the account. */
export function fixPath(reason: string, id: string): string {
  const fix = fixOf(reason)
  if (fix?.kind === 'edit') return `/accounts/${id}/edit?field=${fix.field}`
  if (fix?.kind === 'events') return `/events?account=${id}`
  if (fix?.kind === 'endpoints') return `/endpoints?account=${id}`
  return `/accounts/${id}`
}

/** @param onDone reloads the problems */
export function FixButton({ reason, id, onDone }: { reason: string; id: string; onDone: () => void }) {
  const { t } = useLocalized()
  const fix = fixOf(reason)
  switch (fix?.kind) {
    case undefined:
      return null
    case 'webhook':
      return <PointWebhook id={id} onDone={onDone} />
    case 'verify':
      return <VerifyAccount id={id} testWebhook={fix.testWebhook} onDone={onDone} />
    case 'followers':
      return <ImportFollowers id={id} />
    default:
      return (
        <Link class="button" href={fixPath(reason, id)}>
          {fix?.kind === 'edit'
            ? t.manage.fixField(t.manage.fields[fix.field])
            : t.manage.fixPages[fix?.kind ?? 'events']}
        </Link>
      )
  }
}
